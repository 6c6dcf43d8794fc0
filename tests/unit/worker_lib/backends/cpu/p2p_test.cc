// Point to point between ranks of one node (rings in shared memory) and of several (sockets).
#include <atomic>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/unit/worker_lib/backends/cpu/cpu_ranks.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Transfer sending(std::vector<int32_t>& data, int to, int tag = 0) {
  return transfer_of(OpKind::send, data, to, tag);
}
Transfer receiving(std::vector<int32_t>& data, int from, int tag = 0) {
  return transfer_of(OpKind::recv, data, from, tag);
}

std::vector<int32_t> numbers(size_t count, int32_t first) {
  std::vector<int32_t> made(count);
  std::iota(made.begin(), made.end(), first);
  return made;
}

int expect_done(const Outcome<int>& done) {
  EXPECT_TRUE(done) << done.error().message;
  return done ? *done : -1;
}

void expect_done(const std::vector<std::shared_ptr<WorkState>>& works) {
  for (const auto& work : works)
    EXPECT_EQ(ending(work->wait(after(seconds{60}))), "done");
}

class Transfers : public testing::TestWithParam<std::string> {
 protected:
  CpuRanks ranks_{GetParam()};
  int last_ = ranks_.size() - 1;
  Deadline limit_ = after(seconds{60});
};

TEST_P(Transfers, AMessageOfAnySizeArrivesAsItWasSent) {
  const std::vector<size_t> counts{0, 1, 7, 1000, 16 * 1024, 100'003, 3'000'001};
  ranks_.each([&](int rank) {
    for (const size_t count : counts) {
      std::vector<int32_t> data = numbers(count, static_cast<int32_t>(count));
      std::vector<int32_t> got(count, -1);
      if (rank == 0) {
        expect_done(ranks_[0].transfer(sending(data, last_), limit_));
        expect_done(ranks_[0].transfer(receiving(got, last_), limit_));
        EXPECT_EQ(got, data);
      } else if (rank == last_) {
        EXPECT_EQ(expect_done(ranks_[rank].transfer(receiving(got, 0), limit_)), 0);
        EXPECT_EQ(got, data);
        expect_done(ranks_[rank].transfer(sending(got, 0), limit_));
      }
    }
  });
}

TEST_P(Transfers, MessagesOfOnePairAndTagStayInOrder) {
  constexpr int kMessages = 500;
  ranks_.each([&](int rank) {
    for (int i = 0; i < kMessages; ++i) {
      std::vector<int32_t> data = numbers(static_cast<size_t>(i % 37), i);
      std::vector<int32_t> got(data.size());
      if (rank == 0) expect_done(ranks_[0].transfer(sending(data, last_, i % 2), limit_));
      if (rank != last_) continue;
      expect_done(ranks_[rank].transfer(receiving(got, 0, i % 2), limit_));
      ASSERT_EQ(got, data) << i;
    }
  });
}

TEST_P(Transfers, AnAwaitedTagOvertakesOthers) {
  ranks_.each([&](int rank) {
    std::vector<int32_t> large = numbers(500'000, 7);
    std::vector<int32_t> small = numbers(3, 9);
    if (rank == 0) {
      const auto works =
          ranks_[0].begin({sending(large, last_, 1), sending(small, last_, 2)}, limit_);
      ASSERT_TRUE(works);
      expect_done(*works);
    } else if (rank == last_) {
      std::vector<int32_t> got_small(small.size());
      std::vector<int32_t> got_large(large.size());
      expect_done(ranks_[rank].transfer(receiving(got_small, 0, 2), limit_));
      expect_done(ranks_[rank].transfer(receiving(got_large, 0, 1), limit_));
      EXPECT_EQ(got_small, small);
      EXPECT_EQ(got_large, large);
    }
  });
}

TEST_P(Transfers, AReceiveFromAnyRankReturnsItsSource) {
  ranks_.each([&](int rank) {
    if (rank != 0) {
      std::vector<int32_t> data = numbers(10, 1000 * rank);
      expect_done(ranks_[rank].transfer(sending(data, 0, 5), limit_));
      return;
    }
    std::vector<bool> heard(static_cast<size_t>(ranks_.size()), false);
    for (int i = 1; i < ranks_.size(); ++i) {
      std::vector<int32_t> got(10);
      const int from = expect_done(ranks_[0].transfer(receiving(got, -1, 5), limit_));
      ASSERT_GT(from, 0);
      EXPECT_FALSE(heard[static_cast<size_t>(from)]);
      heard[static_cast<size_t>(from)] = true;
      EXPECT_EQ(got, numbers(10, 1000 * from));
    }
  });
}

TEST_P(Transfers, AnAllToAllBatchCannotDeadlock) {
  constexpr size_t kCount = 300'000;
  ranks_.each([&](int rank) {
    std::vector<std::vector<int32_t>> out;
    std::vector<std::vector<int32_t>> in(static_cast<size_t>(ranks_.size()),
                                         std::vector<int32_t>(kCount));
    std::vector<Transfer> batch;
    for (int peer = 0; peer < ranks_.size(); ++peer)
      out.push_back(numbers(kCount, rank * 1000 + peer));
    for (int peer = 0; peer < ranks_.size(); ++peer) {
      if (peer != rank) batch.push_back(sending(out[static_cast<size_t>(peer)], peer, 3));
    }
    for (int peer = 0; peer < ranks_.size(); ++peer) {
      if (peer != rank) batch.push_back(receiving(in[static_cast<size_t>(peer)], peer, 3));
    }
    const auto works = ranks_[rank].begin(batch, limit_);
    ASSERT_TRUE(works);
    ASSERT_EQ(works->size(), batch.size());
    expect_done(*works);
    for (int peer = 0; peer < ranks_.size(); ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(in[static_cast<size_t>(peer)], numbers(kCount, peer * 1000 + rank));
    }
  });
}

TEST_P(Transfers, BegunTransfersProgressWithoutFurtherCalls) {
  ranks_.each([&](int rank) {
    std::vector<int32_t> data = numbers(1'000'000, 1);
    if (rank == 0) {
      const auto works = ranks_[0].begin({sending(data, last_)}, limit_);
      ASSERT_TRUE(works);
      test::wait_for([&] { return works->front()->outcome().has_value(); }, "the end of the send");
      EXPECT_EQ(ending(works->front()->outcome()), "done");
    } else if (rank == last_) {
      std::vector<int32_t> got(data.size());
      expect_done(ranks_[rank].transfer(receiving(got, 0), limit_));
      EXPECT_EQ(got, data);
    }
  });
}

// Threads of one rank, each with a tag of its own, in both directions at the same time.
TEST_P(Transfers, ThreadsOfOneRankDoNotMixTheirMessages) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 100;
  ranks_.each([&](int rank) {
    if (rank != 0 && rank != last_) return;
    const int peer = last_ - rank;
    std::vector<std::thread> threads;
    for (int tag = 0; tag < kThreads; ++tag) {
      threads.emplace_back([&, tag] {
        for (int round = 0; round < kRounds; ++round) {
          std::vector<int32_t> data = numbers(static_cast<size_t>(1 + tag * 200 + round), tag);
          std::vector<int32_t> got(data.size());
          if (rank == 0) expect_done(ranks_[0].transfer(sending(data, peer, tag), limit_));
          expect_done(ranks_[rank].transfer(receiving(got, peer, tag), limit_));
          if (rank != 0) expect_done(ranks_[rank].transfer(sending(data, peer, tag), limit_));
          ASSERT_EQ(got, data);
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  });
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const timeval &user = used.ru_utime, &system = used.ru_stime;
  return static_cast<double>(user.tv_sec + system.tv_sec) +
         static_cast<double>(user.tv_usec + system.tv_usec) * 1e-6;
}

// Sends `count` messages to the next rank before any is received, or posts all receives first.
// Returns the processor time per message, of all ranks together.
double time_under_way(CpuRanks& ranks, int count, bool receives_first, int tags) {
  const double began = cpu_seconds();
  ranks.each([&](int rank) {
    const int next = (rank + 1) % ranks.size();
    const int before = (rank + ranks.size() - 1) % ranks.size();
    std::vector<std::vector<int32_t>> sent, got;
    for (int i = 0; i < count; ++i) {
      sent.push_back(numbers(16, i));
      got.emplace_back(16, -1);
    }
    std::vector<std::shared_ptr<WorkState>> works;
    const auto begin = [&](const Transfer& transfer) {
      const auto begun = ranks[rank].begin({transfer}, after(seconds{120}));
      ASSERT_TRUE(begun) << begun.error().message;
      works.push_back(begun->front());
    };
    const auto at = [](auto& all, int i) -> auto& { return all[static_cast<size_t>(i)]; };
    for (int i = 0; i < count && receives_first; ++i)
      begin(receiving(at(got, i), before, i % tags));
    for (int i = 0; i < count; ++i)
      begin(sending(at(sent, i), next, i % tags));
    for (int i = 0; i < count && !receives_first; ++i)
      expect_done(
          ranks[rank].transfer(receiving(at(got, i), before, i % tags), after(seconds{120})));
    expect_done(works);
    EXPECT_EQ(got, sent);
  });
  return (cpu_seconds() - began) / count;
}

TEST_P(Transfers, AMessageCostsTheSameHoweverManyAreUnderWay) {
  constexpr double kFactor = 20;  // Ten times the promise.
  for (const bool receives_first : {false, true}) {
    for (const int tags : {1, 20'000}) {
      double few = 0;
      for (int i = 0; i < 20; ++i)
        few += time_under_way(ranks_, 200, receives_first, tags) / 20;
      const double many = time_under_way(ranks_, 20'000, receives_first, tags);
      EXPECT_LT(many, kFactor * few) << "receives first: " << receives_first << ", tags: " << tags;
      std::printf("%.2f and %.2f us\n", few * 1e6, many * 1e6);
    }
  }
}

// All ranks begin the same random exchange; any order of posting must complete.
TEST_P(Transfers, RandomTrafficArrives) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  struct Message {
    int from, to, tag;
    size_t count;
  };
  std::mt19937 random(seed);
  std::vector<Message> messages;
  for (int i = 0; i < 300; ++i)
    messages.push_back({static_cast<int>(random() % static_cast<unsigned>(ranks_.size())),
                        static_cast<int>(random() % static_cast<unsigned>(ranks_.size())),
                        static_cast<int>(random() % 3), random() % 20'000});
  ranks_.each([&](int rank) {
    std::mt19937 own(seed + static_cast<unsigned>(rank));
    std::vector<std::vector<int32_t>> buffers(messages.size());
    std::vector<std::shared_ptr<WorkState>> works;
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& m = messages[i];
      std::vector<Transfer> begun;
      std::vector<int32_t> copy = numbers(m.count, static_cast<int32_t>(i));
      if (m.from == rank && m.to == rank) continue;
      buffers[i] = m.from == rank ? copy : std::vector<int32_t>(m.count);
      if (m.from == rank) begun.push_back(sending(buffers[i], m.to, m.tag));
      if (m.to == rank) begun.push_back(receiving(buffers[i], m.from, m.tag));
      if (begun.empty()) continue;
      auto more = ranks_[rank].begin(begun, limit_);
      ASSERT_TRUE(more);
      works.insert(works.end(), more->begin(), more->end());
      if (own() % 4 == 0) std::this_thread::yield();
    }
    expect_done(works);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].to != rank || messages[i].from == rank) continue;
      ASSERT_EQ(buffers[i], numbers(messages[i].count, static_cast<int32_t>(i))) << "seed " << seed;
    }
  });
}

// ---- what goes wrong

TEST_P(Transfers, TheReceiverReportsCountsThatDiffer) {
  ranks_.each([&](int rank) {
    std::vector<int32_t> data(10);
    std::vector<int32_t> smaller(4);
    if (rank == 0) expect_done(ranks_[0].transfer(sending(data, last_, 8), limit_));
    if (rank != last_) return;
    const auto got = ranks_[rank].transfer(receiving(smaller, 0, 8), limit_);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::mismatch);
    EXPECT_THAT(got.error().message,
                HasSubstr(fmt::format("sent 10 int32 with tag 8 where rank {} (", last_)));
    EXPECT_THAT(got.error().message, HasSubstr(") receives 4 int32;"));
    EXPECT_EQ(got.error().ranks, (std::vector<GlobalRank>{{0}, {last_}}));
  });
}

TEST_P(Transfers, AnUnservedReceiveEndsAtItsDeadlineAndNamesThePeer) {
  std::vector<int32_t> got(3);
  const auto begun = std::chrono::steady_clock::now();
  const auto late = ranks_[0].transfer(receiving(got, last_, 4), after(milliseconds{200}));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_THAT(late.error().message, HasSubstr("did not send a message with tag 4 in time"));
  EXPECT_EQ(late.error().ranks, std::vector<GlobalRank>{GlobalRank{last_}});
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds{200});
  EXPECT_EQ(ending(Outcome<>(
                tl::unexpected(ranks_[0].transfer(receiving(got, last_, 9), limit_).error()))),
            ending(late.error()))
      << "the group is unusable afterwards";
}

TEST_P(Transfers, ALateReceiveNamesAnotherMessageThatWaits) {
  std::vector<int32_t> data(3);
  ranks_.each([&](int rank) {
    std::vector<int32_t> mine(3);
    if (rank == last_) expect_done(ranks_[rank].transfer(sending(mine, 0, 1), limit_));
  });
  Transfer receive = receiving(data, last_, 2);
  receive.limit = milliseconds{300};
  const auto late = ranks_[0].transfer(receive, after(receive.limit));
  ASSERT_FALSE(late);
  EXPECT_THAT(
      late.error().message,
      HasSubstr(
          "did not send a message with tag 2 within 300 ms; a message with tag 1 from rank "));
  EXPECT_THAT(late.error().message, testing::EndsWith(" is waiting to be received"));
}

TEST_P(Transfers, AnUnreceivedSendEndsAtItsDeadline) {
  std::vector<int32_t> data(20'000'000);
  const auto late = ranks_[0].transfer(sending(data, last_), after(milliseconds{200}));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_THAT(late.error().message, HasSubstr("did not receive the message with tag 0 in time"));
  EXPECT_THAT(late.error().message, HasSubstr("use isend() or batch_isend_irecv()"));
}

TEST_P(Transfers, ABegunReceiveEndsAtItsDeadline) {
  std::vector<int32_t> got(3);
  const auto works = ranks_[0].begin({receiving(got, -1)}, after(milliseconds{100}));
  ASSERT_TRUE(works);
  EXPECT_EQ(ending(works->front()->wait(limit_)),
            "timeout: no message with tag 0 arrived from any rank in time");
}

TEST_P(Transfers, AbortEndsBlockedAndBegunTransfers) {
  std::vector<int32_t> got(3);
  std::vector<int32_t> other(3);
  const auto works = ranks_[0].begin({receiving(got, last_, 1)}, limit_);
  ASSERT_TRUE(works);
  std::thread blocked([&] {
    const auto ended = ranks_[0].transfer(receiving(other, last_, 2), limit_);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ending(ended.error()), "aborted: enough");
  });
  test::pause_for(milliseconds{1}, "it may be blocked by then");
  ranks_[0].abort({ErrorCode::aborted, "enough", {}});
  blocked.join();
  EXPECT_EQ(ending(works->front()->wait(limit_)), "aborted: enough");
  const auto later = ranks_[0].transfer(sending(got, last_), limit_);
  ASSERT_FALSE(later);
  EXPECT_EQ(ending(later.error()), "aborted: enough");
}

TEST_P(Transfers, DroppingTheGroupEndsBegunTransfers) {
  std::vector<int32_t> got(3);
  const auto works = ranks_[0].begin({receiving(got, last_, 1)}, limit_);
  ASSERT_TRUE(works);
  ranks_.drop(0);
  EXPECT_THAT(ending(works->front()->wait(limit_)), HasSubstr("aborted: "));
}

INSTANTIATE_TEST_SUITE_P(Groups, Transfers, testing::Values("aa", "aaaa", "ab", "aabb", "abc"),
                         [](const auto& shape) { return shape.param; });

// Only sockets report that the peer has closed.
TEST(SocketTransfers, AReceiverLearnsAtOnceThatThePeerHasClosed) {
  CpuRanks ranks("ab");
  std::vector<int32_t> data = numbers(4, 1);
  std::vector<int32_t> got(4);
  expect_done(ranks[1].transfer(sending(data, 0), after(seconds{60})));
  ranks.drop(1);
  expect_done(ranks[0].transfer(receiving(got, 1), after(seconds{60})));
  EXPECT_EQ(got, data) << "data sent before the end arrives";
  const auto ended = ranks[0].transfer(receiving(got, 1), after(seconds{60}));
  ASSERT_FALSE(ended);
  EXPECT_EQ(ending(ended.error()).rfind("peer_failed: rank 1", 0), 0) << ending(ended.error());
  EXPECT_EQ(ended.error().ranks, std::vector<GlobalRank>{GlobalRank{1}});
}

TEST(SocketTransfers, AReceiveFromAnyRankOutlivesTheEndOfOnePeer) {
  CpuRanks ranks("abc");
  std::vector<int32_t> data = numbers(4, 1);
  std::vector<int32_t> got(4);
  expect_done(ranks[1].transfer(sending(data, 0), after(seconds{60})));
  expect_done(ranks[0].transfer(receiving(got, -1), after(seconds{60})));
  ranks.drop(1);
  const auto works = ranks[0].begin({receiving(got, -1)}, after(seconds{60}));
  ASSERT_TRUE(works);
  expect_done(ranks[2].transfer(sending(data, 0), after(seconds{60})));
  expect_done(*works);
  EXPECT_EQ(works->front()->source(), 2);
}

TEST(SocketTransfers, ASendNamesThePeerThatCannotBeReached) {
  CpuRanks ranks("ab");
  ranks.drop(1);
  std::vector<int32_t> data(4);
  const auto ended = ranks[0].transfer(sending(data, 1), after(seconds{60}));
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::peer_failed);
  EXPECT_THAT(ended.error().message, HasSubstr("cannot be reached at 127.0.0.1:"));
}

}  // namespace
}  // namespace muster::worker
