// How collectives in shared memory fail: which ranks are named, what every rank reports, and that
// nothing hangs.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/cpu/shm_world.h"

namespace muster::worker {
namespace {

using shm_test::said;
using shm_test::World;
using std::chrono::milliseconds;

// Buffers large enough for any operation here.
struct Memory {
  std::vector<std::byte> in = std::vector<std::byte>(size_t{1} << 20);
  std::vector<std::byte> out = std::vector<std::byte>(size_t{1} << 20);

  Operation of(Operation operation) {
    operation.in = in.data();
    operation.out = operation.kind == OpKind::broadcast ? in.data() : out.data();
    return operation;
  }
};

Operation sum_of(size_t count) {
  return {.kind = OpKind::all_reduce, .count = count, .dtype = DType::float32};
}

Operation helper_of(CallPurpose purpose) {
  return {.kind = OpKind::all_reduce,
          .count = 1,
          .dtype = DType::uint8,
          .reduce = ReduceOp::max,
          .purpose = purpose};
}

const Failure kDied{ErrorCode::peer_failed, "rank 20 (host, pid 4002) died", {GlobalRank{20}}};

// ---- different calls

struct Different {
  const char* what;
  std::vector<Operation> calls;  // By rank.
  const char* said;
};

const std::vector<Different>& different_calls() {
  static const std::vector<Different> table = {
      {"kind",
       {{.kind = OpKind::barrier}, {.kind = OpKind::barrier}, sum_of(4)},
       "mismatch [20]: rank 20 (host, pid 4002) called all_reduce (sum) of 4 float32, but rank 0 "
       "(host, pid 4000) called barrier; all ranks must make the same calls in the same order"},
      {"purpose",
       {helper_of(CallPurpose::should_stop), helper_of(CallPurpose::itself),
        helper_of(CallPurpose::should_stop)},
       "mismatch [10]: rank 10 (host, pid 4001) called all_reduce (max) of 1 uint8, but rank 0 "
       "(host, pid 4000) called should_stop(); all ranks must make the same calls in the same "
       "order"},
      {"part of a call",
       {{.kind = OpKind::barrier, .purpose = CallPurpose::save_checkpoint},
        {.kind = OpKind::barrier, .purpose = CallPurpose::save_checkpoint},
        helper_of(CallPurpose::save_checkpoint)},
       "mismatch [20]: rank 20 (host, pid 4002) called save_checkpoint() (its all_reduce (max) of "
       "1 uint8), but rank 0 (host, pid 4000) called save_checkpoint() (its barrier); all ranks "
       "must make the same calls in the same order"},
      {"equal counts",
       {sum_of(8), {.kind = OpKind::all_gather, .count = 8, .had_counts = true}, sum_of(8)},
       "mismatch [10]: rank 10 (host, pid 4001) called all_gather_v of 8 uint8, but rank 0 (host, "
       "pid 4000) called all_reduce (sum) of 8 float32; all ranks must make the same calls in the "
       "same order"},
      {"count",
       {sum_of(8), sum_of(4), sum_of(8)},
       "mismatch [10]: rank 10 (host, pid 4001) called all_reduce (sum) of 4 float32, but rank 0 "
       "(host, pid 4000) called all_reduce (sum) of 8 float32; all ranks must make the same calls "
       "in the same order"},
      {"dtype",
       {{.kind = OpKind::all_gather, .count = 4, .dtype = DType::int32},
        {.kind = OpKind::all_gather, .count = 4, .dtype = DType::float32},
        {.kind = OpKind::all_gather, .count = 4, .dtype = DType::float32}},
       "mismatch [0]: rank 0 (host, pid 4000) called all_gather of 4 int32, but rank 10 (host, pid "
       "4001) called all_gather of 4 float32; all ranks must make the same calls in the same "
       "order"},
      {"reduction",
       {{.kind = OpKind::reduce, .count = 1, .dtype = DType::int8, .reduce = ReduceOp::max},
        {.kind = OpKind::reduce, .count = 1, .dtype = DType::int8, .reduce = ReduceOp::max},
        {.kind = OpKind::reduce, .count = 1, .dtype = DType::int8, .reduce = ReduceOp::min}},
       "mismatch [20]: rank 20 (host, pid 4002) called reduce (min) of 1 int8 to rank 0 (host, pid "
       "4000), but rank 0 (host, pid 4000) called reduce (max) of 1 int8 to rank 0 (host, pid "
       "4000); all ranks must make the same calls in the same order"},
      {"root",
       {{.kind = OpKind::broadcast, .count = 9, .root = 1},
        {.kind = OpKind::broadcast, .count = 9, .root = 1},
        {.kind = OpKind::broadcast, .count = 9, .root = 2}},
       "mismatch [20]: rank 20 (host, pid 4002) called broadcast of 9 uint8 from rank 20 (host, "
       "pid "
       "4002), but rank 0 (host, pid 4000) called broadcast of 9 uint8 from rank 10 (host, pid "
       "4001); all ranks must make the same calls in the same order"},
      {"all of them",
       {{.kind = OpKind::barrier}, sum_of(1), sum_of(2)},
       "mismatch [0 10 20]: rank 10 (host, pid 4001) called all_reduce (sum) of 1 float32, rank 20 "
       "(host, pid 4002) called all_reduce (sum) of 2 float32, but rank 0 (host, pid 4000) called "
       "barrier; all ranks must make the same calls in the same order"},
      {"counts of one sum",
       {{.kind = OpKind::all_gather, .count = 1, .is_v = true, .recv_counts = {1, 2, 3}},
        {.kind = OpKind::all_gather, .count = 2, .is_v = true, .recv_counts = {1, 2, 3}},
        {.kind = OpKind::all_gather, .count = 3, .is_v = true, .recv_counts = {2, 1, 3}}},
       "mismatch [20]: rank 20 (host, pid 4002) called all_gather_v of 6 uint8 in all with other "
       "counts, but rank 0 (host, pid 4000) called all_gather_v of 6 uint8 in all; all ranks must "
       "make the same calls in the same order"},
      {"with counts and without",
       {{.kind = OpKind::gather, .count = 1, .is_v = true},
        {.kind = OpKind::gather, .count = 1},
        {.kind = OpKind::gather, .count = 1}},
       "mismatch [0]: rank 0 (host, pid 4000) called gather_v of uint8 to rank 0 (host, pid 4000), "
       "but rank 10 (host, pid 4001) called gather of 1 uint8 to rank 0 (host, pid 4000); all "
       "ranks "
       "must make the same calls in the same order"},
      {"large ones of other counts",
       {sum_of(100'000), sum_of(100'000), sum_of(100'001)},
       "mismatch [20]: rank 20 (host, pid 4002) called all_reduce (sum) of 100001 float32, but "
       "rank "
       "0 (host, pid 4000) called all_reduce (sum) of 100000 float32; all ranks must make the same "
       "calls in the same order"},
  };
  return table;
}

TEST(ShmFailure, EveryRankReportsDifferentCalls) {
  for (const Different& one : different_calls()) {
    World world(3);
    EXPECT_THAT(world.outcomes([&](int rank, ShmGroup& group) {
      Memory memory;
      return group.run(memory.of(one.calls[static_cast<size_t>(rank)]), soon());
    }),
                testing::Each(one.said))
        << one.what;
  }
}

TEST(ShmFailure, CheckComparesCallsAndMovesNothing) {
  World world(3);
  EXPECT_THAT(world.outcomes([](int, ShmGroup& group) {
    return group.check({.kind = OpKind::all_reduce, .count = size_t{1} << 50}, soon());
  }),
              testing::Each("done"));
  EXPECT_THAT(world.outcomes([](int rank, ShmGroup& group) {
    return group.check({.kind = OpKind::all_reduce, .count = rank == 1 ? 2U : 3U}, soon());
  }),
              testing::Each(testing::StartsWith("mismatch [10]: ")));
}

// Only the sender and the receiver know these counts, which must agree.
TEST(ShmFailure, EveryRankReportsCountsThatDifferBetweenSenderAndReceiver) {
  const auto gather = [](int rank) {
    Operation call{.kind = OpKind::gather, .dtype = DType::int32, .root = 2, .is_v = true};
    call.count = rank == 1 ? 5U : 3U;
    if (rank == 2) call.recv_counts = {3, 4, 3};
    return call;
  };
  const auto scatter = [](int rank) {
    Operation call{.kind = OpKind::scatter, .dtype = DType::int32, .root = 0, .is_v = true};
    call.count = rank == 2 ? 6U : 3U;
    if (rank == 0) call.send_counts = {3, 3, 7};
    return call;
  };
  const auto all_to_all = [](int rank) {
    Operation call{.kind = OpKind::all_to_all, .dtype = DType::int32, .is_v = true};
    call.send_counts = {1, 1, 1};
    call.recv_counts = {1, 1, rank == 0 ? size_t{2} : size_t{1}};
    return call;
  };
  const auto run_all = [](const std::function<Operation(int)>& call) {
    World world(3);
    return world.outcomes([&](int rank, ShmGroup& group) {
      Memory memory;
      const Outcome<> outcome = group.run(memory.of(call(rank)), soon());
      // A rank that neither sends nor receives them may be done already and fails in its next call.
      return outcome ? group.run({.kind = OpKind::barrier}, soon()) : outcome;
    });
  };
  EXPECT_THAT(
      run_all(gather),
      testing::Each("mismatch [10 20]: rank 10 (host, pid 4001) sends 5 elements to rank 20 "
                    "(host, pid 4002), which expects 4 from it; make the counts of both "
                    "equal"));
  EXPECT_THAT(run_all(scatter),
              testing::Each("mismatch [0 20]: rank 0 (host, pid 4000) sends 7 elements to rank 20 "
                            "(host, pid 4002), which expects 6 from it; make the counts of both "
                            "equal"));
  EXPECT_THAT(run_all(all_to_all),
              testing::Each("mismatch [0 20]: rank 20 (host, pid 4002) sends 1 elements to rank 0 "
                            "(host, pid 4000), which expects 2 from it; make the counts of both "
                            "equal"));
}

// ---- absent ranks

TEST(ShmFailure, ATimeoutNamesAllAbsentRanksAndFailsTheGroupForThem) {
  World world(4);
  std::atomic<int> waiting{2};
  std::atomic<int> suspicions{0};
  const auto outcomes = world.outcomes([&](int rank, ShmGroup& group) -> Outcome<> {
    if (rank % 2 == 0) {
      // The time of rank 0 begins when rank 2 has come.
      while (rank == 0 && world.segment().call_line(2, 1).sequence.load() == 0)
        std::this_thread::yield();
      const Outcome<> outcome = group.run({.kind = OpKind::barrier, .limit = milliseconds{150}},
                                          rank == 0 ? after(milliseconds{150}) : soon());
      // As the group does, once it knows the culprit.
      if (outcome.error().is_suspicion) suspicions.fetch_add(1);
      group.abort(outcome.error());
      waiting.fetch_sub(1);
      return outcome;
    }
    while (waiting.load() > 0)
      std::this_thread::yield();
    return group.run({.kind = OpKind::barrier}, soon());
  });
  EXPECT_THAT(
      outcomes,
      testing::Each(
          "timeout [10 30]: rank 10 (host, pid 4001) and rank 30 (host, pid 4003) did not arrive "
          "within 150 ms; check what they are doing instead, or give a longer timeout"));
  EXPECT_GT(suspicions.load(), 0) << "no rank was told the reason";
  EXPECT_EQ(said(world[0].run({.kind = OpKind::barrier}, soon())), outcomes[0]);
}

TEST(ShmFailure, APassedDeadlineDoesNotFailACallThatAllHaveEntered) {
  World world(2);
  std::thread first(
      [&] { EXPECT_EQ(said(world[0].run({.kind = OpKind::barrier}, soon())), "done"); });
  while (world.segment().call_line(0, 1).sequence.load() == 0)
    std::this_thread::yield();
  EXPECT_EQ(said(world[1].run({.kind = OpKind::barrier}, Deadline::min())), "done");
  first.join();
}

// A rank that enters a large operation and then stalls is named by the ranks that wait for its
// chunks.
TEST(ShmFailure, ARankThatStopsWithinACallIsNamed) {
  World world(3);
  const size_t count = 200'000;
  Segment& segment = world.segment();
  // Plays rank 1 up to the meeting.
  std::thread stopped([&] {
    for (const int rank : {0, 2}) {
      while (segment.call_line(rank, 1).sequence.load() == 0)
        std::this_thread::yield();
    }
    CallLine& line = segment.call_line(1, 1);
    const CallLine& other = segment.call_line(0, 1);
    line.call = other.call;
    line.count = other.count;
    line.sequence.store(1);
  });
  const auto outcomes = world.outcomes([&](int rank, ShmGroup& group) -> Outcome<> {
    if (rank == 1) return Done{};
    std::vector<float> data(count);
    Operation call = sum_of(count);
    call.in = call.out = reinterpret_cast<std::byte*>(data.data());
    return group.run(call, after(milliseconds{300}));
  });
  stopped.join();
  EXPECT_THAT(outcomes[0], testing::StartsWith("timeout [10]: rank 10 (host, pid 4001) did not"));
  EXPECT_EQ(outcomes[2], outcomes[0]);
}

// ---- abort

TEST(ShmFailure, AbortEndsEveryKindOfCallOnAllRanks) {
  for (const size_t count : {size_t{1}, size_t{100}, size_t{200'000}}) {
    for (const OpKind kind : ring::kCollectives) {
      World world(3);
      const auto outcomes = world.outcomes([&](int rank, ShmGroup& group) -> Outcome<> {
        if (rank == 2) {
          for (const int peer : {0, 1}) {
            while (world.segment().call_line(peer, 1).sequence.load() == 0) {
              std::this_thread::yield();
            }
          }
          group.abort(kDied);
          return tl::unexpected(kDied);
        }
        std::vector<std::byte> in(count * 3);
        std::vector<std::byte> out(count * 3);
        Operation call{.kind = kind, .count = count};
        call.in = in.data();
        call.out = call.kind == OpKind::broadcast ? in.data() : out.data();
        return group.run(call, Deadline::max());
      });
      EXPECT_THAT(outcomes, testing::Each("peer_failed [20]: rank 20 (host, pid 4002) died"));
    }
  }
}

TEST(ShmFailure, AbortAtAnyMomentEndsAllRanks) {
  constexpr int kTimes = 60;
  for (int time = 0; time < kTimes; ++time) {
    World world(3);
    std::atomic<int> calls{0};
    std::thread aborter([&] {
      while (calls.load() < time * 5)
        std::this_thread::yield();
      world[0].abort(kDied);
    });
    const auto outcomes = world.outcomes([&](int, ShmGroup& group) {
      Memory memory;
      for (;;) {
        const Outcome<> outcome = group.run(memory.of(sum_of(1'000)), soon());
        if (!outcome) return outcome;
        calls.fetch_add(1);
      }
    });
    aborter.join();
    EXPECT_THAT(outcomes, testing::Each("peer_failed [20]: rank 20 (host, pid 4002) died"));
  }
}

TEST(ShmFailure, AFailedGroupRefusesEveryCallAtOnce) {
  World world(2);
  world[0].abort(kDied);
  Memory memory;
  const std::string expected = "peer_failed [20]: rank 20 (host, pid 4002) died";
  EXPECT_EQ(said(world[1].run({.kind = OpKind::barrier}, Deadline::max())), expected);
  EXPECT_EQ(said(world[0].run(memory.of(sum_of(10)), Deadline::max())), expected);
  EXPECT_EQ(said(world[1].check({.kind = OpKind::barrier}, Deadline::max())), expected);
  const auto block = world[0].allocate_shared(64, Deadline::max());
  ASSERT_FALSE(block.has_value());
  EXPECT_EQ(block.error(), kDied);
}

TEST(ShmFailure, AllocatingSharedMemoryNamesAbsentRanks) {
  World world(3);
  EXPECT_THAT(world.outcomes([](int rank, ShmGroup& group) -> Outcome<> {
    if (rank == 1) return tl::unexpected(Failure{ErrorCode::timeout, "", {GlobalRank{10}}});
    const auto block = group.allocate_shared(64, after(milliseconds{150}));
    return tl::unexpected(block.error());
  }),
              testing::Each(testing::StartsWith("timeout [10]: ")));
}

TEST(ShmFailure, MoreSharedMemoryThanTheKernelCanMapIsAnErrorOnAllRanks) {
  World world(2);
  EXPECT_THAT(world.outcomes([](int, ShmGroup& group) -> Outcome<> {
    const auto block = group.allocate_shared(size_t{1} << 60, soon());
    if (block) return Done{};
    return tl::unexpected(block.error());
  }),
              testing::Each(testing::StartsWith("system [")));
  EXPECT_THAT(world.outcomes([](int, ShmGroup& group) {
    return group.run({.kind = OpKind::barrier}, soon());
  }),
              testing::Each("done"));
}

}  // namespace
}  // namespace muster::worker
