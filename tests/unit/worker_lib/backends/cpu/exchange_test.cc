// Messages of one collective: order, dependencies, frames that identify the call, and every way in
// which a wait ends.
#include "worker_lib/backends/cpu/exchange.h"

#include <atomic>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/cpu/memory_links.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

Operation call(OpKind kind, size_t count, uint64_t sequence) {
  return {.kind = kind, .count = count, .dtype = DType::int32, .sequence = sequence};
}

// One rank's end of an exchange.
struct End {
  End(MemoryNetwork& network, int size, int me)
      : links(network, me, 5),
        members(memory_members(size, me)),
        awaited(size),
        exchange(links, members, abort, &awaited) {}

  MemoryLinks links;
  Members members;
  AbortSwitch abort;
  AwaitedPeers awaited;
  Exchange exchange;
};

std::vector<int32_t> values(size_t count, int32_t first) {
  std::vector<int32_t> made(count);
  std::iota(made.begin(), made.end(), first);
  return made;
}

TEST(Exchange, MessagesOfAPairArriveInOrderAndWhole) {
  MemoryNetwork network;
  on_each_rank(2, [&](int rank) {
    End end(network, 2, rank);
    end.exchange.begin(call(OpKind::all_to_all, 1, 1), soon());
    std::vector<std::vector<int32_t>> out, got;
    for (size_t i = 0; i < 50; ++i) {
      out.push_back(values(i * 37 % 3000, rank * 100 + static_cast<int32_t>(i)));
      got.emplace_back(out.back().size());
    }
    for (size_t i = 0; i < out.size(); ++i) {
      end.exchange.send(1 - rank, out[i].data(), out[i].size() * 4);
      end.exchange.receive(1 - rank, got[i].data(), got[i].size() * 4);
    }
    ASSERT_TRUE(end.exchange.finish());
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(got[i], values(i * 37 % 3000, (1 - rank) * 100 + static_cast<int32_t>(i)));
  });
}

// Passes a token, which at first only rank 0 has, along all ranks.
TEST(Exchange, ASendThatDependsOnAReceiveLeavesAfterIt) {
  constexpr int kSize = 5;
  MemoryNetwork network;
  on_each_rank(kSize, [&](int rank) {
    End end(network, kSize, rank);
    end.exchange.begin(call(OpKind::broadcast, 1, 1), soon());
    int32_t token = rank == 0 ? 77 : 0;
    Ticket heard;
    if (rank > 0) heard = end.exchange.receive(rank - 1, &token, sizeof token);
    if (rank + 1 < kSize) end.exchange.send(rank + 1, &token, sizeof token, heard);
    ASSERT_TRUE(end.exchange.finish());
    EXPECT_EQ(token, 77);
  });
}

TEST(Exchange, CombinesReceivedDataWithItsOwnAndDividesIt) {
  MemoryNetwork network;
  on_each_rank(2, [&](int rank) {
    End end(network, 2, rank);
    end.exchange.begin(call(OpKind::all_reduce, 3, 1), soon());
    const std::vector<int32_t> mine = values(3, rank == 0 ? 10 : 100);
    std::vector<int32_t> out(3);
    end.exchange.send(1 - rank, mine.data(), 12);
    end.exchange.receive_combined(1 - rank, {.dtype = DType::int32, .divisor = 2},
                                  {.out = reinterpret_cast<std::byte*>(out.data()),
                                   .mine = reinterpret_cast<const std::byte*>(mine.data()),
                                   .count = 3,
                                   .is_last = true});
    ASSERT_TRUE(end.exchange.finish());
    EXPECT_THAT(out, ElementsAre(55, 56, 57));
  });
}

TEST(Exchange, LocalCopiesCompleteWithAndWithoutMessages) {
  MemoryNetwork network;
  End a(network, 2, 0), b(network, 2, 1);
  const size_t bytes = 2 * kChunk + 5;
  std::vector<std::byte> from(bytes), to(bytes), other(bytes);
  for (size_t i = 0; i < bytes; ++i)
    from[i] = static_cast<std::byte>(i * 7);
  const Operation operation = call(OpKind::scatter, bytes, 1);
  a.exchange.begin(operation, soon());
  a.exchange.copy(to.data(), from.data(), bytes);
  a.exchange.copy(other.data(), from.data(), 3);
  a.exchange.copy(from.data(), from.data(), bytes);
  EXPECT_TRUE(a.exchange.finish());  // No message at all.
  EXPECT_EQ(to, from);
  EXPECT_EQ(std::vector(other.begin(), other.begin() + 3),
            std::vector(from.begin(), from.begin() + 3));
  EXPECT_EQ(other[3], std::byte{0});

  std::thread peer([&] {
    b.exchange.begin(operation, soon());
    b.exchange.receive(0, other.data(), bytes);
    EXPECT_TRUE(b.exchange.finish());
  });
  to.assign(bytes, std::byte{0});
  a.exchange.send(1, from.data(), bytes);
  a.exchange.copy(to.data(), from.data(), bytes);
  EXPECT_TRUE(a.exchange.finish());
  peer.join();
  EXPECT_EQ(to, from);
  EXPECT_EQ(other, from);
}

// With patience a thread helps with copies of this size; it must stop when the call ends.
TEST(Exchange, LargeCopiesCompleteOrStopWhenTheCallFails) {
  MemoryNetwork network;
  End a(network, 2, 0), b(network, 2, 1);
  a.links.patience = seconds{1};
  const size_t bytes = (size_t{8} << 20) + 3;
  const Operation operation = call(OpKind::scatter, bytes, 1);
  const std::vector<std::byte> from(bytes, std::byte{7});
  for (const bool comes : {true, false}) {
    std::vector<std::byte> to(bytes);
    std::byte got{};
    if (comes) {
      b.exchange.begin(operation, soon());
      b.exchange.send(0, from.data(), 1);
      ASSERT_TRUE(b.exchange.finish());
    }
    if (!comes) a.abort.set({ErrorCode::aborted, "the test says so", {}});
    a.exchange.begin(operation, soon());
    a.exchange.receive(1, &got, 1);
    a.exchange.copy(to.data(), from.data(), bytes);
    EXPECT_EQ(a.exchange.finish().has_value(), comes);
    const std::vector<std::byte> then = to;
    EXPECT_TRUE(then == from || !comes);
    test::pause_for(std::chrono::milliseconds{1}, "a copy that goes on would show");
    EXPECT_EQ(to, then);
  }
}

TEST(Exchange, FinishesSeveralRoundsWithinOneCall) {
  MemoryNetwork network;
  on_each_rank(2, [&](int rank) {
    End end(network, 2, rank);
    end.exchange.begin(call(OpKind::all_gather, 1, 1), soon());
    for (int32_t round = 0; round < 5; ++round) {
      const int32_t mine = rank * 10 + round;
      int32_t theirs = -1;
      end.exchange.send(1 - rank, &mine, sizeof mine);
      end.exchange.receive(1 - rank, &theirs, sizeof theirs);
      ASSERT_TRUE(end.exchange.finish());
      EXPECT_EQ(theirs, (1 - rank) * 10 + round);
    }
  });
}

// Returns what rank 0 reports if two ranks make these calls; empty: it succeeds.
std::string quarrel(const Operation& first, const Operation& second, size_t bytes_sent = 4,
                    size_t bytes_expected = 4) {
  MemoryNetwork network;
  std::string said;
  on_each_rank(2, [&](int rank) {
    End end(network, 2, rank);
    std::vector<std::byte> data(std::max(bytes_sent, bytes_expected));
    end.exchange.begin(rank == 0 ? first : second, soon());
    if (rank == 1) {
      end.exchange.send(0, data.data(), bytes_sent);
      EXPECT_TRUE(end.exchange.finish());
    } else {
      end.exchange.receive(1, data.data(), bytes_expected);
      const Outcome<> done = end.exchange.finish();
      if (!done) {
        EXPECT_EQ(done.error().ranks, (std::vector<GlobalRank>{{0}, {1}})) << "either may be wrong";
        EXPECT_TRUE(done.error().is_suspicion) << "others may know better";
        said = fmt::format("{}: {}", name_of(done.error().code), done.error().message);
      }
    }
  });
  return said;
}

TEST(Exchange, DetectsCallsThatDifferInAnyField) {
  const Operation reduce{.kind = OpKind::reduce,
                         .count = 1,
                         .dtype = DType::float32,
                         .reduce = ReduceOp::sum,
                         .root = 0,
                         .sequence = 9};
  EXPECT_EQ(quarrel(reduce, reduce), "");
  const std::string before = "mismatch: rank 1 (host, pid 101) called ";
  const std::string after =
      " where rank 0 (host, pid 100) called reduce 9 (sum of 1 float32, root 0); all members of a "
      "group must make the same calls in the same order";
  Operation other = reduce;
  other.kind = OpKind::broadcast;
  EXPECT_EQ(quarrel(reduce, other), before + "broadcast 9 (1 float32, root 0)" + after);
  other = reduce;
  other.count = 2;
  EXPECT_EQ(quarrel(reduce, other), before + "reduce 9 (sum of 2 float32, root 0)" + after);
  other = reduce;
  other.dtype = DType::int32;
  EXPECT_EQ(quarrel(reduce, other), before + "reduce 9 (sum of 1 int32, root 0)" + after);
  other = reduce;
  other.reduce = ReduceOp::max;
  EXPECT_EQ(quarrel(reduce, other), before + "reduce 9 (max of 1 float32, root 0)" + after);
  other = reduce;
  other.root = 1;
  EXPECT_EQ(quarrel(reduce, other), before + "reduce 9 (sum of 1 float32, root 1)" + after);
  other = reduce;
  other.sequence = 10;
  EXPECT_EQ(quarrel(reduce, other), before + "reduce 10 (sum of 1 float32, root 0)" + after);
  other = reduce;
  other.purpose = CallPurpose::save_checkpoint;
  EXPECT_EQ(quarrel(reduce, other), before + "save_checkpoint() 9" + after);
  EXPECT_EQ(quarrel(other, other), "");
  other = reduce;
  other.had_counts = true;
  EXPECT_EQ(quarrel(reduce, other), "") << "not compared";
}

// Neither rank expects a message, so neither reads by itself.
TEST(Exchange, DetectsTwoRanksThatBothActAsRoot) {
  MemoryNetwork network;
  std::latch both_have_sent(2);
  on_each_rank(2, [&](int rank) {
    End end(network, 2, rank);
    std::vector<std::byte> data(4);
    Outcome<> done;
    for (uint64_t call = 1; call <= 2 && done; ++call) {
      end.exchange.begin({.kind = OpKind::broadcast,
                          .count = 1,
                          .dtype = DType::float32,
                          .root = rank,
                          .sequence = call},
                         soon());
      end.exchange.send(1 - rank, data.data(), data.size());
      done = end.exchange.finish();
      if (call == 1) both_have_sent.arrive_and_wait();
    }
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::mismatch);
    EXPECT_EQ(done.error().ranks, (std::vector<GlobalRank>{{0}, {1}}));
    EXPECT_THAT(done.error().message,
                HasSubstr(fmt::format("called broadcast 1 (1 float32, root {}) where rank {}",
                                      1 - rank, rank)));
  });
}

// A rank that only sends may be behind; messages of the others may be for later calls.
TEST(Exchange, LeavesMessagesForLaterCalls) {
  MemoryNetwork network;
  std::latch one_is_ahead(1);
  on_each_rank(3, [&](int rank) {
    End end(network, 3, rank);
    const auto broadcast = [&](int root, uint64_t sequence, size_t count) {
      std::vector<std::byte> data(count);
      end.exchange.begin(
          {.kind = OpKind::broadcast, .count = count, .root = root, .sequence = sequence}, soon());
      for (int other = 0; other < 3 && rank == root; ++other)
        if (other != rank) end.exchange.send(other, data.data(), count);
      if (rank != root) end.exchange.receive(root, data.data(), count);
      EXPECT_TRUE(end.exchange.finish());
    };
    if (rank == 2) one_is_ahead.wait();  // Keeps rank 0 in its call.
    broadcast(0, 1, 3 * network.capacity);
    broadcast(1, 2, 4);
    if (rank == 1) one_is_ahead.count_down();
  });
}

TEST(Exchange, DetectsBlockSizesThatDoNotMatch) {
  Operation v{.kind = OpKind::gather, .count = 3, .is_v = true, .sequence = 2};
  EXPECT_EQ(quarrel(v, v, 8, 4),
            "mismatch: rank 1 (host, pid 101) sends 8 bytes where rank 0 (host, pid 100) expects "
            "4; the counts that the ranks pass do not match");
}

TEST(Exchange, DoesNotCompareUnusedFields) {
  Operation one = call(OpKind::all_gather, 1, 3);
  Operation two = one;
  two.root = 5;
  two.reduce = ReduceOp::max;
  EXPECT_EQ(quarrel(one, two), "");
  Operation barrier{.kind = OpKind::barrier, .sequence = 4};
  Operation other = barrier;
  other.count = 7;
  other.dtype = DType::float64;
  EXPECT_EQ(quarrel(barrier, other), "");
}

TEST(Exchange, EndsAtItsDeadlineAndNamesAbsentRanks) {
  MemoryNetwork network;
  End end(network, 3, 0);
  int32_t data = 0;
  Operation gather = call(OpKind::gather, 1, 1);
  gather.limit = milliseconds{50};
  end.exchange.begin(gather, after(gather.limit));
  end.exchange.receive(2, &data, sizeof data);
  end.exchange.receive(1, &data, sizeof data);
  const Outcome<> done = end.exchange.finish();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::timeout);
  EXPECT_THAT(done.error().ranks, ElementsAre(GlobalRank{1}, GlobalRank{2}));
  EXPECT_THAT(done.error().message,
              testing::EndsWith(" did not arrive within 50 ms; check what they are doing instead, "
                                "or give a longer timeout"));
  EXPECT_TRUE(done.error().is_suspicion) << "others may know the straggler";
  EXPECT_THAT(end.awaited.peers(), ElementsAre(1, 2)) << "for others that ask";
}

TEST(Exchange, ASendThatIsNotReceivedTimesOut) {
  MemoryNetwork network;
  End end(network, 2, 0);
  const std::vector<int32_t> data(10'000);
  end.exchange.begin(call(OpKind::scatter, data.size(), 1), after(milliseconds{50}));
  end.exchange.send(1, data.data(), data.size() * 4);
  const Outcome<> done = end.exchange.finish();
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().ranks, ElementsAre(GlobalRank{1}));
}

TEST(Exchange, EndsWithTheFirstAbortReason) {
  MemoryNetwork network;
  End end(network, 2, 0);
  int32_t data = 0;
  end.exchange.begin(call(OpKind::gather, 1, 1), soon());
  end.exchange.receive(1, &data, sizeof data);
  std::thread other([&] {
    EXPECT_TRUE(end.abort.set({ErrorCode::aborted, "first", {}}));
    EXPECT_FALSE(end.abort.set({ErrorCode::aborted, "second", {}}));
    end.links.wake();
  });
  const Outcome<> done = end.exchange.finish();
  other.join();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "first");
}

TEST(Exchange, AStreamThatEndsTooEarlyIsAFailure) {
  MemoryNetwork network;
  network.ended[{1, 0}] = true;
  End end(network, 2, 0);
  int32_t data = 0;
  end.exchange.begin(call(OpKind::gather, 1, 1), soon());
  end.exchange.receive(1, &data, sizeof data);
  const Outcome<> done = end.exchange.finish();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::peer_failed);
  EXPECT_EQ(done.error().message, "rank 1 (host, pid 101) closed its connection (end of stream)");
}

TEST(Exchange, RefusesBytesThatAreNoFrame) {
  MemoryNetwork network;
  network.queues[{1, 0}].assign(64, std::byte{'x'});
  End end(network, 2, 0);
  int32_t data = 0;
  end.exchange.begin(call(OpKind::gather, 1, 1), soon());
  end.exchange.receive(1, &data, sizeof data);
  const Outcome<> done = end.exchange.finish();
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("data that is not a message of a collective"));
}

}  // namespace
}  // namespace muster::worker
