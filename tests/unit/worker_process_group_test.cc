// What the public handles do by themselves: empty ones, calls with options alone, lists in braces.

#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_fake_backend.h"
#include "tests/unit/worker_table_group.h"

namespace muster::worker::group_test {
namespace {

struct HandleCall {
  const char* name;
  std::function<void(ProcessGroup&)> call;
};

// The other rank does not come: what does not heed its time-out ends after a minute, with another
// number in its text.
TEST(ProcessGroupHandle, OptionsAreHeededWithoutReductionOrTagBeforeThem) {
  std::vector<int64_t> in(2);
  std::vector<int64_t> out(2);
  std::vector<int64_t> half(1);
  const GroupRank other{1};
  const GroupRank me{0};
  const CallOptions brief{.timeout = 5ms};
  const std::vector<HandleCall> calls{
      {"reduce", [&](ProcessGroup& g) { g.reduce(in, out, me, brief); }},
      {"reduce", [&](ProcessGroup& g) { g.reduce(in, me, {.timeout = 5ms}); }},
      {"reduce", [&](ProcessGroup& g) { g.reduce_async(in, out, me, {.timeout = 5ms}).wait(); }},
      {"reduce", [&](ProcessGroup& g) { g.reduce_async(in, me, {.timeout = 5ms}).wait(); }},
      {"all_reduce", [&](ProcessGroup& g) { g.all_reduce(in, out, {.timeout = 5ms}); }},
      {"all_reduce", [&](ProcessGroup& g) { g.all_reduce(in, {.timeout = 5ms}); }},
      {"all_reduce", [&](ProcessGroup& g) { g.all_reduce_async(in, out, brief).wait(); }},
      {"all_reduce", [&](ProcessGroup& g) { g.all_reduce_async(in, {.timeout = 5ms}).wait(); }},
      {"reduce_scatter", [&](ProcessGroup& g) { g.reduce_scatter(in, half, {.timeout = 5ms}); }},
      {"reduce_scatter",
       [&](ProcessGroup& g) { g.reduce_scatter_async(in, half, {.timeout = 5ms}).wait(); }},
      {"reduce_scatter_v",
       [&](ProcessGroup& g) { g.reduce_scatter_v(in, half, {1, 1}, {.timeout = 5ms}); }},
      {"reduce_scatter_v",
       [&](ProcessGroup& g) {
         g.reduce_scatter_v_async(in, half, {1, 1}, {.timeout = 5ms}).wait();
       }},
      {"recv", [&](ProcessGroup& g) { g.recv(in, other, {.timeout = 5ms}); }},
      {"recv", [&](ProcessGroup& g) { g.recv_any(in, {.timeout = 5ms}); }},
      {"recv", [&](ProcessGroup& g) { g.irecv(in, other, {.timeout = 5ms}).wait(); }},
      {"recv", [&](ProcessGroup& g) { g.irecv_any(in, {.timeout = 5ms}).wait(); }},
  };
  for (const HandleCall& each : calls) {
    FakeJob job(2, [](GroupHost& host) { host.timeout = 600s; });
    ProcessGroup world = job[0].world();
    EXPECT_TRUE(thrown_by([&] {
                  each.call(world);
                }).starts_with("timeout: " + std::string(each.name) + " "))
        << each.name;
  }
}

TEST(ProcessGroupHandle, ASendWithOptionsAloneHasTheTagZero) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    std::vector<int64_t> data{rank.me};
    if (rank.me == 0) {
      world.send(data, GroupRank{1}, {.timeout = 60s});
      world.isend(data, GroupRank{1}, {.timeout = 60s}).wait();
    } else {
      world.recv(data, GroupRank{0}, 0);
      world.recv(data, GroupRank{0}, 0);
      EXPECT_EQ(data[0], 0);
    }
  });
}

TEST(ProcessGroupHandle, ABatchMayBeAListInBraces) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    ProcessGroup world = rank.world();
    const GroupRank other{1 - rank.me};
    const std::vector<int64_t> mine{rank.me};
    std::vector<int64_t> theirs(1);
    std::vector<Work> works =
        world.batch_isend_irecv({P2POp::send(mine, other), P2POp::recv(theirs, other)});
    ASSERT_EQ(works.size(), 2U);
    for (Work& work : works)
      work.wait();
    EXPECT_EQ(theirs[0], other.value);
  });
}

TEST(ProcessGroupHandle, CountsAreAnyRangeOfThemOrAListInBraces) {
  const auto as_vector = [](Counts counts) {
    const std::span<const size_t> view = counts;
    return std::vector<size_t>(view.begin(), view.end());
  };
  const std::vector<size_t> given{3, 0, 7};
  std::array<size_t, 3> fixed{3, 0, 7};
  EXPECT_EQ(as_vector({3, 0, 7}), given);
  EXPECT_EQ(as_vector(given), given);
  EXPECT_EQ(as_vector(fixed), given);
  EXPECT_EQ(as_vector(std::span<const size_t>(given)), given);
  EXPECT_EQ(as_vector(Counts(given)), given);
  EXPECT_TRUE(as_vector({}).empty());
  static_assert(!std::is_convertible_v<std::vector<int>, Counts>);
}

TEST(ProcessGroupHandle, CountsMayBeAListInBraces) {
  FakeJob job(2);
  job.each([](FakeRank& rank) {
    const std::vector<int64_t> mine(static_cast<size_t>(rank.me + 1), rank.me + 5);
    std::vector<int64_t> all(3);
    rank.world().all_gather_v(mine, all, {1, 2});
    EXPECT_EQ(all, (std::vector<int64_t>{5, 6, 6}));
  });
}

TEST(ProcessGroupHandle, AReductionInPlaceMayBeBegun) {
  on_table(std::make_shared<CallTable>(3), [](ProcessGroup group) {
    std::vector<float> data{static_cast<float>(group.rank().value), 1};
    const std::vector<float> before = data;
    group.reduce_async(data, GroupRank{1}).wait();
    EXPECT_EQ(data, group.rank() == GroupRank{1} ? (std::vector<float>{3, 3}) : before);
  });
}

}  // namespace
}  // namespace muster::worker::group_test
