// Collectives of the cpu backend that cannot succeed: every rank that waits names the ranks that
// are late, gone or in another call, whatever transport lies between.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/cpu/cpu_ranks.h"
#include "tests/wait_for.h"
#include "worker_lib/call_word.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

struct Call {
  std::vector<float> data;
  Operation operation;

  Call(OpKind kind, size_t count, uint64_t sequence, int root = 0) : data(count, 1.0f) {
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    operation = {.kind = kind,
                 .in = bytes,
                 .out = bytes,
                 .count = count,
                 .dtype = DType::float32,
                 .root = root,
                 .sequence = sequence};
  }
};

std::vector<GlobalRank> just(int rank) {
  return {GlobalRank{rank}};
}

class CollectiveFailures : public testing::TestWithParam<std::string> {
 protected:
  // All ranks make one call first, so that each has met the others.
  void SetUp() override {
    ranks_.each([&](int rank) {
      Call first(OpKind::all_reduce, 10, 1);
      const Outcome<> done = ranks_[rank].run(first.operation, after(seconds{60}));
      ASSERT_TRUE(done) << done.error().message;
    });
  }

  CpuRanks ranks_{GetParam()};
  int last_ = ranks_.size() - 1;
};

// The deadlines differ, as if the ranks had arrived at different times.
TEST_P(CollectiveFailures, ATimeoutSuspectsTheRanksThatWereAwaited) {
  for (const auto& [kind, count] :
       {std::pair{OpKind::all_reduce, size_t{100'000}}, std::pair{OpKind::barrier, size_t{0}}}) {
    CpuRanks ranks(GetParam());
    ranks.each([&](int rank) {
      if (rank == last_) return;
      Call call(kind, count, 1);
      const Outcome<> done = ranks[rank].run(call.operation, after(milliseconds{300 + 20 * rank}));
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, ErrorCode::timeout) << done.error().message;
      EXPECT_TRUE(done.error().is_suspicion);
      EXPECT_FALSE(done.error().ranks.empty());
      // On shared memory each rank sees which ranks have arrived.
      const bool sees_all = ranks.describe() == "shared memory";
      EXPECT_TRUE(!sees_all || done.error().ranks == just(last_)) << done.error().message;
    });
  }
}

TEST_P(CollectiveFailures, AbortEndsABlockedCollective) {
  std::atomic<int> ended{0};
  std::vector<std::thread> blocked;
  for (int rank = 0; rank < last_; ++rank) {
    blocked.emplace_back([&, rank] {
      Call call(OpKind::all_reduce, 300'000, 2);
      const Outcome<> done = ranks_[rank].run(call.operation, after(seconds{60}));
      ASSERT_FALSE(done);
      EXPECT_EQ(ending(done.error()), "aborted: enough");
      ++ended;
    });
  }
  test::pause_for(milliseconds{20}, "they may be blocked by then");
  const auto begun = std::chrono::steady_clock::now();
  for (int rank = 0; rank < last_; ++rank)
    ranks_[rank].abort({ErrorCode::aborted, "enough", {}});
  for (std::thread& thread : blocked)
    thread.join();
  EXPECT_EQ(ended.load(), last_);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, test::within(seconds{1}));
  Call later(OpKind::barrier, 0, 3);
  const Outcome<> done = ranks_[0].run(later.operation, after(seconds{60}));
  ASSERT_FALSE(done);
  EXPECT_EQ(ending(done.error()), "aborted: enough");
}

// Some ranks only wait for ever; those that ask the others then find the mismatch.
TEST_P(CollectiveFailures, DifferentCallsAreDetected) {
  std::atomic<int> mismatches{0};
  std::atomic<int> suspicions{0};
  ranks_.each([&](int rank) {
    Call sum(OpKind::all_reduce, 100, 2);
    Call copy(OpKind::broadcast, 100, 2);
    const Outcome<> done = ranks_[rank].run((rank == last_ ? copy : sum).operation,
                                            after(milliseconds{rank == 0 ? 3000 : 2000}));
    if (!done && done.error().code == ErrorCode::mismatch) {
      ++mismatches;
      EXPECT_THAT(done.error().message, HasSubstr("broadcast"));
      EXPECT_THAT(done.error().message, HasSubstr("all_reduce"));
      // As the group does, so that no rank waits for this one.
      for (int other = 0; other < ranks_.size(); ++other)
        ranks_[other].abort(done.error());
    }
    if (!done && done.error().is_suspicion) ++suspicions;
  });
  // On shared memory all ranks see the call of each.
  const bool sees_all = ranks_.describe() == "shared memory";
  EXPECT_GT(mismatches.load() + (sees_all ? 0 : suspicions.load()), 0);
  EXPECT_EQ(ranks_[0].last_calls() == ranks_[last_].last_calls(), sees_all);
}

TEST_P(CollectiveFailures, DifferentCountsAreDetected) {
  std::atomic<int> mismatches{0};
  ranks_.each([&](int rank) {
    Call call(OpKind::all_reduce, rank == last_ ? 100 : 200, 2);
    const Outcome<> done = ranks_[rank].run(call.operation, after(seconds{2}));
    if (done || done.error().code != ErrorCode::mismatch) return;
    ++mismatches;
    EXPECT_THAT(done.error().message, HasSubstr("200"));
    for (int other = 0; other < ranks_.size(); ++other)
      ranks_[other].abort(done.error());
  });
  EXPECT_GT(mismatches.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Groups, CollectiveFailures,
                         testing::Values("aa", "aaaa", "ab", "abcd", "aabb", "abab", "aabbcc",
                                         "aabbc"),
                         [](const auto& shape) { return shape.param; });

class SocketFailures : public testing::TestWithParam<std::string> {
 protected:
  CpuRanks ranks_{GetParam()};
  int last_ = ranks_.size() - 1;
};

// Following the awaited peers leads to the rank that all wait for.
TEST_P(SocketFailures, EachRankReportsItsAwaitedPeersWhileItWaits) {
  std::atomic<bool> is_found{false};
  const auto leads_to_last = [&](int from) {
    std::set<int> seen;
    std::vector<int> open{from};
    while (!open.empty()) {
      const int rank = open.back();
      open.pop_back();
      if (rank == last_) return true;
      if (!seen.insert(rank).second) continue;
      const std::vector<int> awaited = ranks_[rank].awaited();
      open.insert(open.end(), awaited.begin(), awaited.end());
    }
    return false;
  };
  ranks_.each([&](int rank) {
    if (rank == last_) {
      test::wait_for([&] { return leads_to_last(0); }, "a way to the last rank");
      is_found = true;
      for (int other = 0; other < last_; ++other)
        ranks_[other].abort({ErrorCode::aborted, "found"});
      return;
    }
    Call call(OpKind::barrier, 0, 1);
    const Outcome<> done = ranks_[rank].run(call.operation, after(seconds{60}));
    EXPECT_TRUE(!done && done.error().message == "found");
  });
  EXPECT_TRUE(is_found.load());
}

TEST_P(SocketFailures, EachRankReportsItsLastCall) {
  ranks_.each([&](int rank) {
    EXPECT_TRUE(ranks_[rank].last_calls().empty());
    Call call(rank == last_ ? OpKind::barrier : OpKind::all_reduce, 10, 1);
    static_cast<void>(ranks_[rank].run(call.operation, after(milliseconds{100})));
    EXPECT_EQ(ranks_[rank].last_calls(),
              (std::vector<NumberedCall>{{1, signature_of(call.operation)}}));
  });
}

TEST_P(SocketFailures, APeersEndIsDetectedAtOnce) {
  ranks_.each([&](int rank) {
    Call first(OpKind::all_reduce, 100'000, 1);
    ASSERT_TRUE(ranks_[rank].run(first.operation, after(seconds{60})));
  });
  ranks_.drop(last_);
  std::atomic<int> told{0};
  ranks_.each([&](int rank) {
    if (rank == last_) return;
    Call call(OpKind::all_reduce, 100'000, 2);
    const Outcome<> done = ranks_[rank].run(call.operation, after(milliseconds{1500}));
    ASSERT_FALSE(done);
    if (done.error().code != ErrorCode::peer_failed) return;
    EXPECT_EQ(done.error().ranks, just(last_)) << done.error().message;
    ++told;
  });
  EXPECT_GT(told.load(), 0);
}

TEST_P(SocketFailures, AnAbortReasonOutranksAClosedConnection) {
  ranks_.each([&](int rank) {
    Call first(OpKind::all_reduce, 100'000, 1);
    ASSERT_TRUE(ranks_[rank].run(first.operation, after(seconds{60})));
  });
  ranks_.drop(last_);
  ranks_.each([&](int rank) {
    if (rank == last_) return;
    std::thread watch([&] {
      ranks_[rank].abort({ErrorCode::peer_failed, "it was killed by signal 9", just(last_)});
    });
    Call call(OpKind::all_reduce, 100'000, 2);
    const Outcome<> done = ranks_[rank].run(call.operation, after(seconds{60}));
    watch.join();
    ASSERT_FALSE(done);
    EXPECT_EQ(ending(done.error()), "peer_failed: it was killed by signal 9");
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, SocketFailures, testing::Values("ab", "abcd", "aabb", "aabbc"),
                         [](const auto& shape) { return shape.param; });

TEST(CpuBackendSetUp, NamesRanksThatDoNotArrive) {
  BackendRanks ranks(3);
  ranks.adjust = [](GroupSetup& setup) {
    for (size_t i = 0; i < 3; ++i)
      setup.members.peers[i].node = std::string(1, static_cast<char>('a' + i));
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto made = make_cpu_backend(ranks.setup_of(rank, after(seconds{2})));
      ASSERT_FALSE(made);
      EXPECT_EQ(made.error().code, ErrorCode::timeout);
      EXPECT_EQ(made.error().ranks, just(2));
      EXPECT_THAT(made.error().message,
                  HasSubstr("did not arrive to set up the group's connections"));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

TEST(CpuBackendSetUp, FailsWithTheReasonThatInterruptsIt) {
  BackendRanks ranks(2);
  const Failure why{ErrorCode::peer_failed, "rank 1 died", just(1)};
  ranks.adjust = [&](GroupSetup& setup) {
    setup.members.peers[1].node = "other";
    setup.interrupted = [&] { return why; };
  };
  const auto made = make_cpu_backend(ranks.setup_of(0, after(seconds{60})));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), why);
}

}  // namespace
}  // namespace muster::worker
