// The Gloo backend with threads as ranks: every collective against the reference, messages, and how
// it fails if a rank is absent, leaves or is stopped.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/init.h"
#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "tests/unit/worker_lib/backends/backend_reference.h"
#include "worker_lib/backends/gloo/gloo_mesh.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

using Backends = std::vector<std::unique_ptr<GroupBackend>>;

GroupBackend& of(const Backends& backends, int rank) {
  return *backends[static_cast<size_t>(rank)];
}

// All ranks perform all cases one after the other and check their results.
void perform_all(int ranks, const std::vector<BackendCase>& cases) {
  BackendRanks group(ranks);
  const Backends backends = group.make(make_gloo_backend);
  ASSERT_FALSE(testing::Test::HasFailure());
  group.each([&](int rank) {
    run_cases(cases, rank, [&](CaseRank& mine, uint64_t sequence) {
      return of(backends, rank).run(mine.operation(sequence), soon());
    });
  });
  fmt::print("{} cases on {} ranks\n", cases.size(), ranks);
}

// Gloo's wake-ups are slow for threads that share few cores, so these perform a part of the cases.
TEST(GlooBackend, EveryCollectiveEqualsTheReferenceOnTwoRanks) {
  perform_all(2, some_of(every_case(2, {0, 1, 7, 1000}), 7));
}

TEST(GlooBackend, EveryCollectiveEqualsTheReferenceOnThreeRanks) {
  perform_all(3, some_of(every_case(3, {0, 1, 13}), 7));
}

TEST(GlooBackend, EveryCollectiveEqualsTheReferenceOnFiveRanks) {
  perform_all(5, some_of(every_case(5, {0, 2}), 11));
}

TEST(GlooBackend, LargeBuffersArriveWhole) {
  std::vector<BackendCase> cases;
  for (const BackendCase& one : every_case(3, {1'000'003}))
    if (one.dtype == DType::float32 && one.reduce == ReduceOp::sum && !one.is_v)
      cases.push_back(one);
  perform_all(3, cases);
}

TEST(GlooBackend, NoRankLeavesABarrierBeforeTheLastArrives) {
  BackendRanks group(4);
  const Backends backends = group.make(make_gloo_backend);
  std::atomic<int> came{0};
  group.each([&](int rank) {
    for (int round = 1; round <= 50; ++round) {
      came += 1;
      const Operation barrier{.sequence = static_cast<uint64_t>(round)};
      ASSERT_TRUE(of(backends, rank).run(barrier, soon()));
      ASSERT_GE(came.load(), round * 4);
      ASSERT_TRUE(of(backends, rank).run(Operation{.sequence = 1000 + barrier.sequence}, soon()));
    }
  });
}

// ---- messages

// Gloo completes a send when the message is received, so the sends must overlap.
TEST(GlooBackend, MessagesOfOnePairAndTagArriveInOrderAndTagsKeepThemApart) {
  constexpr int kMessages = 20;
  BackendRanks group(2);
  const Backends backends = group.make(make_gloo_backend);
  group.each([&](int rank) {
    std::vector<std::vector<int32_t>> data;
    std::vector<Transfer> sends;
    for (int i = 0; i < kMessages; ++i) {
      data.emplace_back(10, i);
      sends.push_back(transfer_of(OpKind::send, data.back(), 1, i % 2));
    }
    if (rank == 0) {
      const auto works = of(backends, 0).begin(sends, soon());
      ASSERT_TRUE(works);
      for (const auto& work : *works)
        ASSERT_EQ(ending(work->wait(soon())), "done");
      return;
    }
    for (int tag = 1; tag >= 0; --tag) {
      for (int i = tag; i < kMessages; i += 2) {
        std::vector<int32_t> got(10, -1);
        const Outcome<int> from =
            of(backends, 1).transfer(transfer_of(OpKind::recv, got, 0, tag), soon());
        ASSERT_TRUE(from);
        ASSERT_EQ(*from, 0);
        ASSERT_EQ(got, std::vector<int32_t>(10, i));
      }
    }
  });
}

TEST(GlooBackend, AReceiveFromAnyRankReturnsItsSource) {
  BackendRanks group(3);
  const Backends backends = group.make(make_gloo_backend);
  group.each([&](int rank) {
    std::vector<int32_t> data(3, rank);
    if (rank != 1) {
      ASSERT_TRUE(of(backends, rank).transfer(transfer_of(OpKind::send, data, 1, 9), soon()));
      return;
    }
    std::vector<int> senders;
    for (int i = 0; i < 2; ++i) {
      const Outcome<int> from =
          of(backends, 1).transfer(transfer_of(OpKind::recv, data, -1, 9), soon());
      ASSERT_TRUE(from);
      EXPECT_EQ(data, std::vector<int32_t>(3, *from));
      senders.push_back(*from);
    }
    std::sort(senders.begin(), senders.end());
    EXPECT_THAT(senders, ElementsAre(0, 2));
  });
}

TEST(GlooBackend, ABatchOfMessagesInARingNeedsNoOrder) {
  BackendRanks group(4);
  const Backends backends = group.make(make_gloo_backend);
  group.each([&](int rank) {
    std::vector<int32_t> out(100'000, rank);
    std::vector<int32_t> in(100'000, -1);
    const auto works = of(backends, rank)
                           .begin({transfer_of(OpKind::send, out, (rank + 1) % 4),
                                   transfer_of(OpKind::recv, in, (rank + 3) % 4)},
                                  soon());
    ASSERT_TRUE(works);
    for (const auto& work : *works)
      ASSERT_EQ(ending(work->wait(soon())), "done");
    EXPECT_EQ(in, std::vector<int32_t>(100'000, (rank + 3) % 4));
    EXPECT_EQ((*works)[1]->source(), (rank + 3) % 4);
  });
}

TEST(GlooBackend, AWaitThatExpiresLeavesTheGroupUsable) {
  BackendRanks group(2);
  const Backends backends = group.make(make_gloo_backend);
  std::promise<void> looked;
  group.each([&](int rank) {
    std::vector<int32_t> data(4, 7);
    if (rank == 0) {
      const auto works = of(backends, 0).begin({transfer_of(OpKind::recv, data, 1)}, soon());
      ASSERT_TRUE(works);
      // The wait expires; the operation and the group go on.
      EXPECT_EQ(ending(works->front()->wait(after(milliseconds{30}))), "under way");
      EXPECT_EQ(ending(works->front()->outcome()), "under way");
      looked.set_value();
      EXPECT_EQ(ending(works->front()->wait(soon())), "done");
    } else {
      looked.get_future().wait();
      ASSERT_TRUE(of(backends, 1).transfer(transfer_of(OpKind::send, data, 0), soon()));
    }
    ASSERT_TRUE(of(backends, rank).run(Operation{.sequence = 1}, soon()));
  });
}

// ---- failures

TEST(GlooBackend, AnAbsentRankIsNamedAtTheDeadline) {
  BackendRanks group(4);
  const Backends backends = group.make(make_gloo_backend);
  std::atomic<int> named{0};
  group.each([&](int rank) {
    if (rank == 1 || rank == 3) return;
    const auto begun = std::chrono::steady_clock::now();
    const Outcome<> outcome = of(backends, rank).run(Operation{.sequence = 1}, begun + seconds{2});
    ASSERT_FALSE(outcome);
    if (outcome.error().code == ErrorCode::timeout) {
      named += 1;
      EXPECT_THAT(outcome.error().ranks, ElementsAre(GlobalRank{1}, GlobalRank{3}));
      EXPECT_THAT(outcome.error().message, HasSubstr("rank 3 (testhost, pid "));
      EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds{1950});
    } else {
      // The other's time-out closed its connections a moment before ours.
      EXPECT_EQ(outcome.error().code, ErrorCode::peer_failed);
    }
  });
  EXPECT_GE(named, 1);
}

struct Mismatch {
  Operation rank_1;  // The other two call an all_reduce (sum) of 5 float32.
  std::string called;
};

TEST(GlooBackend, ARankWithADifferentCallIsNamedOnAllRanks) {
  const std::vector<Mismatch> mismatches{
      {{.kind = OpKind::all_reduce, .count = 5000, .dtype = DType::float32},
       "all_reduce (sum) of 5000 float32"},
      {{.kind = OpKind::all_reduce, .count = 5, .dtype = DType::float64},
       "all_reduce (sum) of 5 float64"},
      {{.kind = OpKind::all_reduce, .count = 5, .dtype = DType::float32, .reduce = ReduceOp::max},
       "all_reduce (max) of 5 float32"},
      {{.kind = OpKind::broadcast, .count = 5, .dtype = DType::float32, .root = 2},
       "broadcast of 5 float32 from rank 2 (testhost, pid "},
      {{.kind = OpKind::barrier}, "barrier"}};
  for (const Mismatch& mismatch : mismatches) {
    BackendRanks group(3);
    const Backends backends = group.make(make_gloo_backend);
    group.each([&](int rank) {
      std::vector<double> data(5000, 1);
      Operation op{.kind = OpKind::all_reduce, .count = 5, .dtype = DType::float32};
      if (rank == 1) op = mismatch.rank_1;
      op.in = op.out = reinterpret_cast<std::byte*>(data.data());
      op.sequence = 1;
      const Outcome<> outcome = of(backends, rank).run(op, soon());
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().code, ErrorCode::mismatch);
      EXPECT_THAT(outcome.error().ranks, ElementsAre(GlobalRank{1}));
      EXPECT_THAT(outcome.error().message, HasSubstr("called " + mismatch.called));
      EXPECT_THAT(outcome.error().message, HasSubstr("called all_reduce (sum) of 5 float32;"));
    });
  }
}

TEST(GlooBackend, CountsThatOnlyTwoRanksKnowAreComparedBetweenThem) {
  BackendRanks group(2);
  const Backends backends = group.make(make_gloo_backend);
  group.each([&](int rank) {
    std::vector<float> data(100, 1);
    Operation op{.kind = OpKind::gather, .count = 5, .dtype = DType::float32, .is_v = true};
    op.in = reinterpret_cast<std::byte*>(data.data());
    op.out = reinterpret_cast<std::byte*>(data.data());
    op.sequence = 1;
    if (rank == 0) op.recv_counts = {5, 4};
    const Outcome<> outcome = of(backends, rank).run(op, soon());
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::mismatch);
    EXPECT_THAT(outcome.error().message, HasSubstr("sends 5 elements to rank 0 (testhost"));
    EXPECT_THAT(outcome.error().message, HasSubstr("which expects 4"));
  });
}

TEST(GlooBackend, AMessageOfUnexpectedSizeTimesOut) {
  BackendRanks group(2);
  const Backends backends = group.make(make_gloo_backend);
  group.each([&](int rank) {
    std::vector<int32_t> data(rank == 0 ? 1000 : 10);
    const Transfer transfer = transfer_of(rank == 0 ? OpKind::send : OpKind::recv, data, 1 - rank);
    const Outcome<int> outcome = of(backends, rank).transfer(transfer, after(milliseconds{200}));
    ASSERT_FALSE(outcome);
    EXPECT_TRUE(outcome.error().code == ErrorCode::timeout ||
                outcome.error().code == ErrorCode::peer_failed);
  });
}

TEST(GlooBackend, ALateReceiveNamesTheMissingMessage) {
  for (const int peer : {-1, 1}) {
    BackendRanks group(2);
    const Backends backends = group.make(make_gloo_backend);
    std::vector<int32_t> data(4);
    Transfer receive = transfer_of(OpKind::recv, data, peer);
    receive.limit = milliseconds{200};
    const Outcome<int> outcome = of(backends, 0).transfer(receive, after(receive.limit));
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::timeout);
    EXPECT_THAT(outcome.error().message,
                HasSubstr(peer < 0 ? "no message with tag 0 arrived from any rank within 200 ms"
                                   : "did not send a message with tag 0 within 200 ms"));
  }
}

TEST(GlooBackend, APassedDeadlineTimesOutAtOnce) {
  BackendRanks group(2);
  const Backends backends = group.make(make_gloo_backend);
  const Outcome<> outcome =
      of(backends, 0).run(Operation{.sequence = 1}, std::chrono::steady_clock::now());
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::timeout);
}

// Gloo by itself would stay in the call until its time-out: a minute here.
TEST(GlooBackend, AbortEndsABlockedCollectiveWithItsReason) {
  BackendRanks group(3);
  const Backends backends = group.make(make_gloo_backend);
  const Failure reason{ErrorCode::aborted, "abort() was called", {GlobalRank{0}}};
  std::atomic<int> blocked{0};
  const auto begun = std::chrono::steady_clock::now();
  std::thread aborting([&] {
    while (blocked < 2)
      std::this_thread::yield();
    of(backends, 0).abort(reason);
    of(backends, 1).abort(reason);
    of(backends, 0).abort({ErrorCode::stopped, "a later reason does not count"});
  });
  group.each([&](int rank) {
    if (rank == 2) return;
    std::vector<float> data(1000, 1);
    Operation op{.kind = OpKind::all_reduce, .count = data.size(), .dtype = DType::float32};
    op.in = op.out = reinterpret_cast<std::byte*>(data.data());
    blocked += 1;
    const Outcome<> outcome = of(backends, rank).run(op, soon());
    ASSERT_FALSE(outcome);
    // Rank 1 may notice the end of rank 0 before its own abort.
    if (rank == 0 || outcome.error().code != ErrorCode::peer_failed)
      EXPECT_EQ(outcome.error(), reason);
    else
      EXPECT_EQ(outcome.error().ranks, std::vector{GlobalRank{0}});
    EXPECT_EQ(ending(of(backends, rank).run(op, soon())), ending(outcome));
  });
  aborting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds{30});
}

TEST(GlooBackend, AbortEndsPendingMessages) {
  BackendRanks group(2);
  const Backends backends = group.make(make_gloo_backend);
  const Failure reason{ErrorCode::stopped, "the job was told to end", {}};
  std::vector<int32_t> data(4);
  const auto works =
      of(backends, 0)
          .begin({transfer_of(OpKind::recv, data, 1, 1), transfer_of(OpKind::recv, data, -1, 2)},
                 soon());
  ASSERT_TRUE(works);
  const auto begun = std::chrono::steady_clock::now();
  of(backends, 0).abort(reason);
  for (const auto& work : *works)
    EXPECT_EQ(ending(work->wait(soon())), ending(reason));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds{30});
}

TEST(GlooBackend, ALostPeerIsNamedWithoutAnAbort) {
  BackendRanks group(3);
  Backends backends = group.make(make_gloo_backend);
  group.each([&](int rank) {
    if (rank == 1) {
      backends[1].reset();
      return;
    }
    std::vector<int32_t> data(4);
    const Outcome<int> outcome =
        of(backends, rank).transfer(transfer_of(OpKind::recv, data, 1), soon());
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::peer_failed);
    EXPECT_THAT(outcome.error().ranks, ElementsAre(GlobalRank{1}));
    EXPECT_THAT(outcome.error().message, HasSubstr("rank 1 (testhost, pid "));
  });
}

TEST(GlooBackend, DestructionDoesNotWaitForPendingReceives) {
  BackendRanks group(2);
  Backends backends = group.make(make_gloo_backend);
  std::vector<int32_t> data(4);
  const auto works = of(backends, 0).begin({transfer_of(OpKind::recv, data, 1)}, soon());
  ASSERT_TRUE(works);
  backends[0].reset();
  EXPECT_EQ(ending(works->front()->outcome()), "aborted: the group is gone");
}

// ---- set-up

TEST(GlooSetUp, NamesRanksThatDoNotArrive) {
  BackendRanks group(3);
  group.each([&](int rank) {
    if (rank == 1) return;
    const auto backend = make_gloo_backend(group.setup_of(rank, after(seconds{2})));
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, ErrorCode::timeout);
    EXPECT_THAT(backend.error().ranks, ElementsAre(GlobalRank{1}));
  });
}

TEST(GlooSetUp, EndsOnAnInterruptionBeforeAndWhileConnecting) {
  const Failure reason{ErrorCode::peer_failed, "rank 1 died", {GlobalRank{1}}};
  for (const bool has_written : {false, true}) {
    BackendRanks group(2);
    std::atomic<int> asked{0};
    group.adjust = [&](GroupSetup& setup) {
      setup.interrupted = [&]() -> std::optional<Failure> {
        if (++asked < 5) return std::nullopt;
        return reason;
      };
    };
    if (has_written) {
      // The other rank wrote an address at which it no longer listens.
      GroupSetup other = group.setup_of(1, soon());
      other.interrupted = [&]() -> std::optional<Failure> { return reason; };
      ASSERT_FALSE(make_gloo_backend(std::move(other)));
    }
    asked = 0;
    const auto begun = std::chrono::steady_clock::now();
    const auto backend = make_gloo_backend(group.setup_of(0, soon()));
    ASSERT_FALSE(backend);
    EXPECT_TRUE(backend.error() == reason || backend.error().code == ErrorCode::peer_failed)
        << backend.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds{30});
  }
}

TEST(GlooSetUp, RefusesAnAddressThatIsNotLocal) {
  BackendRanks group(2);
  GroupSetup setup = group.setup_of(0, soon());
  setup.members.peers[0].address = "203.0.113.7";
  const auto backend = make_gloo_backend(std::move(setup));
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::backend);
  EXPECT_THAT(backend.error().message, HasSubstr("Gloo cannot listen on 203.0.113.7"));
  EXPECT_THAT(backend.error().message, HasSubstr("GLOO_SOCKET_IFNAME"));
}

TEST(GlooSetUp, IsAvailable) {
  std::string why;
  EXPECT_TRUE(is_gloo_available(&why));
  EXPECT_EQ(why, "");
}

// ---- pieces

TEST(GlooReason, DropsSourceLinesAndFullStops) {
  EXPECT_EQ(
      gloo_reason("[/build/gloo/transport/tcp/pair.cc:589] Connection closed by peer [::1]:4"),
      "Connection closed by peer [::1]:4");
  EXPECT_EQ(gloo_reason("[a.cc:1] [b.cc:2] Timed out.\n"), "Timed out");
  EXPECT_EQ(gloo_reason("[::1] refused"), "[::1] refused");
  EXPECT_EQ(gloo_reason(""), "");
}

TEST(GlooTimeLeft, StaysWithinTheRangeOfGloo) {
  EXPECT_EQ(gloo_time_left(Deadline::max()), std::chrono::hours{24 * 7});
  EXPECT_LE(gloo_time_left(std::chrono::steady_clock::now()), milliseconds{0});
  EXPECT_GT(gloo_time_left(after(milliseconds{10'000})), milliseconds{0});
}

}  // namespace
}  // namespace muster::worker
