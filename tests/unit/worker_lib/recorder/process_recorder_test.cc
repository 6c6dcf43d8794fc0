// The recorder of a process: how it finds its ring, that C, C++ and the helpers record the line of
// the program that called them, and what a process reports if it cannot record. All tests share the
// one ring of this process, in a world of one.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/distributed.h"
#include "muster/muster.h"
#include "rendezvous/base/contract.h"
#include "tests/fakes/temp_tree.h"
#include "tests/unit/worker_lib/recorder/recorded_ranks.h"

namespace muster::worker::recorder_test {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ring::TestRing& ring_of_process() {
  static const auto* const ring = [] {
    auto* made = new ring::TestRing;
    setenv(env::kRecordFd.data(), made->text().c_str(), 1);
    return made;
  }();
  return *ring;
}

class ProcessRecorder : public testing::Test {
 protected:
  void SetUp() override {
    static_cast<void>(ring_of_process());
    init_process_group({.backend = Backend::cpu});
    for (const auto& [id, group] : groups_of(ring()))
      if (group.text.ends_with(": ready")) world_ = id;
  }
  void TearDown() override { destroy_process_group(); }

  static const ring::Ring& ring() { return *ring_of_process(); }

  // The call sites of the world's calls that `act` makes.
  std::vector<uint64_t> sites_of(const std::function<void()>& act) const {
    const size_t before = records_of(ring(), world_).size();
    act();
    std::vector<uint64_t> sites;
    const auto records = records_of(ring(), world_);
    for (size_t i = before; i < records.size(); ++i)
      sites.push_back(site_address(ring(), records[i]));
    return sites;
  }

  std::string world_;
};

// Matches an address inside `function`, which is short.
MATCHER_P(IsIn, function, "") {
  const auto begin = reinterpret_cast<uint64_t>(function);
  return arg > begin && arg < begin + 4000;
}

// Defines a function of the program; the statement after the call prevents a tail call.
#define CALLER(name, call)           \
  [[gnu::noinline]] void name() {    \
    call;                            \
    asm volatile("" : : : "memory"); \
  }

float value = 1;

CALLER(reduce_in_cpp, world().all_reduce(Buffer(&value, 1, DType::float32)))
CALLER(begin_in_cpp, world().barrier_async().wait())
CALLER(gather_bytes_in_cpp, world().all_gather_bytes("x"))
CALLER(share_in_cpp, world().allocate_shared(8))
CALLER(ask_to_stop_in_cpp, (void)should_stop())
CALLER(load_in_cpp, load_checkpoint("/nowhere/at/all"))
CALLER(reduce_in_c,
       muster_all_reduce(nullptr, &value, &value, 1, MUSTER_FLOAT32, MUSTER_SUM, nullptr, nullptr))
CALLER(gather_bytes_in_c, {
  void* out = nullptr;
  size_t length = 0;
  muster_all_gather_bytes(nullptr, "x", 1, &out, &length, nullptr);
  muster_free(out);
})
CALLER(buckets_in_cpp, {
  std::vector<float> data(4);
  const std::vector<Buffer> buffers{Buffer(data)};
  GradientBuckets buckets(world(), buffers);
  buckets.ready(0);
  buckets.wait();
})
#undef CALLER

TEST_F(ProcessRecorder, EachCallIsRecordedWithTheFunctionThatMadeIt) {
  EXPECT_THAT(sites_of(reduce_in_cpp), ElementsAre(IsIn(&reduce_in_cpp)));
  EXPECT_THAT(sites_of(begin_in_cpp), ElementsAre(IsIn(&begin_in_cpp)));
  EXPECT_THAT(sites_of(gather_bytes_in_cpp),
              ElementsAre(IsIn(&gather_bytes_in_cpp), IsIn(&gather_bytes_in_cpp)));
  EXPECT_THAT(sites_of(share_in_cpp), ElementsAre(IsIn(&share_in_cpp), IsIn(&share_in_cpp)));
  EXPECT_THAT(sites_of(reduce_in_c), ElementsAre(IsIn(&reduce_in_c)));
  EXPECT_THAT(sites_of(gather_bytes_in_c),
              ElementsAre(IsIn(&gather_bytes_in_c), IsIn(&gather_bytes_in_c)));
}

TEST_F(ProcessRecorder, AHelpersCallIsRecordedWithTheFunctionThatCalledTheHelper) {
  EXPECT_THAT(sites_of(ask_to_stop_in_cpp), ElementsAre(IsIn(&ask_to_stop_in_cpp)));
  EXPECT_THAT(sites_of(load_in_cpp), Each(IsIn(&load_in_cpp)));
  EXPECT_THAT(sites_of(load_in_cpp), Not(IsEmpty()));
  EXPECT_THAT(sites_of(buckets_in_cpp), Each(IsIn(&buckets_in_cpp)));
}

TEST_F(ProcessRecorder, ACallInsideABlockIsRecordedWithTheBlocksFunction) {
  const std::vector<uint64_t> sites = sites_of([] { zero_first([] { reduce_in_cpp(); }); });
  ASSERT_FALSE(sites.empty());
  EXPECT_THAT(sites.front(), IsIn(&reduce_in_cpp));
  EXPECT_THAT(sites.back(), Not(IsIn(&reduce_in_cpp)));
}

TEST_F(ProcessRecorder, ShowsTheSectionsOfTheProgram) {
  {
    const Section outer("evaluation");
    ASSERT_EQ(muster_section_enter("the second half"), MUSTER_OK);
    EXPECT_THAT(section_texts(ring()), ElementsAre("evaluation", "the second half"));
    muster_section_leave();
    EXPECT_THAT(section_texts(ring()), ElementsAre("evaluation"));
  }
  EXPECT_THAT(section_texts(ring()), IsEmpty());
  EXPECT_EQ(muster_section_enter(nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
}

TEST_F(ProcessRecorder, HelpersEnterSectionsOfTheirOwn) {
  const TempTree tree;
  std::vector<std::string> seen;
  const auto look = [&] {
    for (const std::string& section : section_texts(ring()))
      seen.push_back(section);
  };
  zero_first(look);
  local_zero_first(look);
  save_checkpoint(tree.root() / "checkpoint", [&](std::ostream&) { look(); });
  EXPECT_THAT(seen, ElementsAre("zero_first", "local_zero_first", "save_checkpoint"));
  EXPECT_THAT(section_texts(ring()), IsEmpty());
}

TEST_F(ProcessRecorder, ShowsAFailedInitialisation) {
  destroy_process_group();
  EXPECT_EQ(group_in(ring(), world_).text, world_ + " (world) of ranks 0, 0 of 1: closed");
  InitOptions nobody_there{.init_method = "tcp://127.0.0.1:9"};
  nobody_there.timeout = std::chrono::milliseconds(10);
  nobody_there.rank = 1;
  nobody_there.world_size = 2;
  EXPECT_THROW(init_process_group(nobody_there), DistributedError);
  EXPECT_THAT(group_texts(ring()), Contains(HasSubstr(" (world) of ranks 0-1, 1 of 2: failed")));
  EXPECT_THAT(failure_text(ring()), HasSubstr("rank 0 did not join"));
}

// ---- processes of their own

// Initialises a world of one, twice; exits with 0 if it has no recorder.
[[noreturn]] void join_alone(const std::string& record_fd) {
  setenv(env::kRecordFd.data(), record_fd.c_str(), 1);
  for (int times = 0; times < 2; ++times) {
    init_process_group({.backend = Backend::cpu});
    world().barrier();
    const Section section("nobody listens");
    destroy_process_group();
  }
  std::exit(process_recorder() == nullptr ? 0 : 1);
}

class OtherProcess : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(OtherProcess, ReportsAClosedDescriptorOnceAndGoesOn) {
  EXPECT_EXIT(join_alone("987:1f00c3a29b7e4d51"), testing::ExitedWithCode(0),
              testing::MatchesRegex("muster: rank 0 records no calls, so a hang is not explained: "
                                    "descriptor 987 .*\\(see MUSTER_RECORD_FD\\)\n"));
}

TEST_F(OtherProcess, ReportsAMalformedVariableAndGoesOn) {
  EXPECT_EXIT(join_alone("rubbish"), testing::ExitedWithCode(0), HasSubstr("'rubbish'"));
}

TEST_F(OtherProcess, ReportsNothingIfAnotherProcessOfTheWorkerRecords) {
  std::string why;
  std::unique_ptr<ring::RingWriter> owner;
  if (!testing::internal::InDeathTestChild()) {  // The child inherits all this.
    const ring::TestRing& ring = ring_of_process();
    fcntl(ring.fd(), F_SETFD, 0);
    setenv(env::kRecordFd.data(), ring.text().c_str(), 1);
    owner = ring::RingWriter::attach(ring.text(), ring::Source::worker_lib, why);
  }
  EXPECT_EXIT(join_alone(getenv(env::kRecordFd.data())), testing::ExitedWithCode(0),
              testing::Eq(""));
}

}  // namespace
}  // namespace muster::worker::recorder_test
