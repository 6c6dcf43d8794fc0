// A backend in a library of C (tests/fakes/plug_in.c) with threads as its two ranks, and libraries
// that are refused.
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "worker_lib/backends/gloo_module.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

class ModuleBackendTest : public testing::Test {
 protected:
  ~ModuleBackendTest() override { unsetenv("MUSTER_GLOO_LIBRARY"); }
  static std::string open(const char* plug_in) {
    setenv("MUSTER_GLOO_LIBRARY", fmt::format("{}/{}.so", MUSTER_PLUG_INS, plug_in).c_str(), 1);
    std::string why;
    return can_open_gloo(&why) ? "opened" : why;
  }
};

TEST_F(ModuleBackendTest, CarriesCollectivesAndMessagesOfALibraryInC) {
  ASSERT_EQ(open("plug_in"), "opened");
  BackendRanks group(2);
  const auto backends = group.make(make_gloo_backend);
  ASSERT_FALSE(HasFailure());
  group.each([&](int rank) {
    GroupBackend& mine = *backends[static_cast<size_t>(rank)];
    std::vector<int32_t> data{rank * 10, 2'000'000'000, 5};
    Operation op{.kind = OpKind::all_reduce, .count = 3, .dtype = DType::int32};
    op.reduce = ReduceOp::average;
    op.in = op.out = reinterpret_cast<std::byte*>(data.data());
    op.sequence = 1;
    EXPECT_EQ(ending(mine.run(op, soon())), "done");
    EXPECT_THAT(data, ElementsAre(5, 2'000'000'000, 5));
    EXPECT_EQ(ending(mine.run(Operation{.sequence = 2}, soon())), "done");

    const auto works =
        mine.begin({transfer_of(rank == 0 ? OpKind::send : OpKind::recv, data, 1 - rank)}, soon());
    ASSERT_TRUE(works);
    EXPECT_EQ(ending(works->front()->wait(soon())), "done");
    EXPECT_EQ(works->front()->source(), 1 - rank);
  });
}

TEST_F(ModuleBackendTest, ComparesTheCallsOfTheRanksItself) {
  ASSERT_EQ(open("plug_in"), "opened");
  BackendRanks group(2);
  const auto backends = group.make(make_gloo_backend);
  ASSERT_FALSE(HasFailure());
  group.each([&](int rank) {
    std::vector<float> data(3);
    Operation op{.kind = OpKind::all_reduce, .dtype = DType::float32, .sequence = 1};
    op.count = static_cast<size_t>(1 + rank);
    op.in = op.out = reinterpret_cast<std::byte*>(data.data());
    EXPECT_THAT(ending(backends[static_cast<size_t>(rank)]->run(op, soon())),
                MatchesRegex("mismatch: .* of 2 float32.* of 1 float32.*"));
  });
}

TEST_F(ModuleBackendTest, ReportsTheFailuresOfTheLibrary) {
  ASSERT_EQ(open("plug_in"), "opened");
  BackendRanks group(2);
  const auto backends = group.make(make_gloo_backend);
  ASSERT_FALSE(HasFailure());
  const Failure failure{
      ErrorCode::backend, "this module performs all_reduce only", {GlobalRank{0}, GlobalRank{1}}};
  group.each([&](int rank) {
    std::byte data{};
    const Operation op{.kind = OpKind::broadcast, .in = &data, .out = &data, .count = 1};
    EXPECT_EQ(backends[static_cast<size_t>(rank)]->run(op, soon()).error(), failure);
  });

  GroupSetup setup = group.setup_of(0, soon());
  setup.name = "refused";
  const auto refused = make_gloo_backend(std::move(setup));
  ASSERT_FALSE(refused);
  EXPECT_EQ(ending(refused.error()), "environment: a module in C does not like the name");
  EXPECT_THAT(refused.error().ranks, ElementsAre(GlobalRank{0}, GlobalRank{1}));
  EXPECT_TRUE(refused.error().is_suspicion);
}

TEST_F(ModuleBackendTest, EndsBlockedCallsWithTheReasonOfTheAbort) {
  ASSERT_EQ(open("plug_in"), "opened");
  BackendRanks group(2);
  const auto backends = group.make(make_gloo_backend);
  ASSERT_FALSE(HasFailure());
  std::vector<int32_t> data(3);
  const auto works = backends[0]->begin({transfer_of(OpKind::recv, data, 1)}, soon());
  ASSERT_TRUE(works);
  const Failure reason{ErrorCode::stopped, "the job was told to end"};
  backends[0]->abort(reason);
  EXPECT_EQ(ending(works->front()->wait(soon())), ending(reason));
}

TEST_F(ModuleBackendTest, RefusesALibraryThatWasBuiltForAnotherTable) {
  const std::string cannot = "the gloo backend cannot be opened: " MUSTER_PLUG_INS "/";
  EXPECT_THAT(open("plug_in_version"),
              MatchesRegex(cannot + "plug_in_version.so was built for another table of backends: "
                                    "version 7 \\(structures of [0-9, ]+ bytes\\), where this "
                                    "library knows version 1 .*; install the libmuster_gloo.so.* "
                                    "of this muster, or use the cpu backend"));
  EXPECT_THAT(open("plug_in_size"),
              MatchesRegex(cannot + "plug_in_size.so was built for another table of backends: "
                                    "version 1 \\(structures of 8, [0-9, ]+ bytes\\), where this "
                                    "library knows version 1 .*"));
  EXPECT_THAT(open("plug_in_without_entry"),
              MatchesRegex(cannot + "plug_in_without_entry.so has no muster_gloo_module: it is "
                                    "another library; .*, or use the cpu backend"));
}

}  // namespace
}  // namespace muster::worker
