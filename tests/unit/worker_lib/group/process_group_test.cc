// The public handles: empty ones, calls with only options, lists in braces.

#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

struct HandleCall {
  const char* name;
  std::function<void(ProcessGroup&)> call;
};

TEST(ProcessGroupHandle, AnEmptyHandleSaysWhereToGetOne) {
  std::array<float, 2> data{};
  std::string text;
  const GroupRank root{0};
  const std::vector<HandleCall> calls{
      {"is_member", [](ProcessGroup& g) { g.is_member(); }},
      {"rank", [](ProcessGroup& g) { g.rank(); }},
      {"size", [](ProcessGroup& g) { g.size(); }},
      {"ranks", [](ProcessGroup& g) { g.ranks(); }},
      {"global_rank", [](ProcessGroup& g) { g.global_rank({0}); }},
      {"group_rank", [](ProcessGroup& g) { g.group_rank({0}); }},
      {"name", [](ProcessGroup& g) { g.name(); }},
      {"timeout", [](ProcessGroup& g) { g.timeout(); }},
      {"cpu_backend", [](ProcessGroup& g) { g.cpu_backend(); }},
      {"cuda_backend", [](ProcessGroup& g) { g.cuda_backend(); }},
      {"barrier", [](ProcessGroup& g) { g.barrier(); }},
      {"all_reduce", [&](ProcessGroup& g) { g.all_reduce(data); }},
      {"broadcast", [&](ProcessGroup& g) { g.broadcast_async(data, root).wait(); }},
      {"gather_v", [&](ProcessGroup& g) { g.gather_v(data, {}, {}, root); }},
      {"send", [&](ProcessGroup& g) { g.send(data, root); }},
      {"recv", [&](ProcessGroup& g) { g.irecv(data, root).wait(); }},
      {"batch_isend_irecv", [](ProcessGroup& g) { static_cast<void>(g.batch_isend_irecv({})); }},
      {"monitored_barrier", [](ProcessGroup& g) { g.monitored_barrier(); }},
      {"broadcast_bytes", [&](ProcessGroup& g) { g.broadcast_bytes(text, root); }},
      {"all_gather_bytes", [](ProcessGroup& g) { g.all_gather_bytes("x"); }},
      {"allocate_shared", [](ProcessGroup& g) { g.allocate_shared(1); }},
      {"split", [](ProcessGroup& g) { g.split(0); }},
      {"abort", [](ProcessGroup& g) { g.abort(); }},
      {"failure", [](ProcessGroup& g) { static_cast<void>(g.failure()); }},
  };
  ProcessGroup empty;
  EXPECT_FALSE(empty.valid());
  for (const HandleCall& each : calls) {
    EXPECT_EQ(thrown_by([&] { each.call(empty); }),
              "invalid_argument: " + std::string(each.name) +
                  ": empty ProcessGroup: get one from world(), new_group() or split()");
  }
}

// The other rank never arrives; a call that ignored its timeout would take ten minutes.
TEST(ProcessGroupHandle, OptionsMayFollowWithoutAReductionOrTag) {
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

TEST(ProcessGroupHandle, CountsMayBeAnyRangeOfSizes) {
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

TEST(ProcessGroupHandle, AnAsynchronousReduceMayBeInPlace) {
  FakeJob(3).each_world([](ProcessGroup group) {
    std::vector<float> data{static_cast<float>(group.rank().value), 1};
    const std::vector<float> before = data;
    group.reduce_async(data, GroupRank{1}).wait();
    EXPECT_EQ(data, group.rank() == GroupRank{1} ? (std::vector<float>{3, 3}) : before);
  });
}

}  // namespace
}  // namespace muster::worker::group_test
