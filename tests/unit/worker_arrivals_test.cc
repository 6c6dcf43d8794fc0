// Arrivals of ranks that are threads, over a real store.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/store_server_harness.h"
#include "worker_lib/backends/arrivals.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EndsWith;
using testing::StartsWith;

Deadline in(milliseconds wait) {
  return std::chrono::steady_clock::now() + wait;
}

class ArrivalsTest : public testing::Test {
 protected:
  Members members(int me) const {
    Members all;
    for (int rank = 0; rank < 4; ++rank)
      all.peers.push_back({GlobalRank{rank + 10}, "node", "testhost", 100 + rank, "127.0.0.1"});
    all.me = me;
    return all;
  }

  std::unique_ptr<Arrivals> start(int me) const {
    auto started = Arrivals::start(
        members(me),
        [port = store_->port()](Deadline until) -> Outcome<StoreClient> {
          auto client =
              StoreClient::connect({.host = "127.0.0.1",
                                    .port = port,
                                    .connect_timeout = until - std::chrono::steady_clock::now()});
          if (!client) return failed(ErrorCode::system, client.error().message);
          return client->with_prefix("arrivals");
        },
        in(seconds{60}));
    if (!started) {
      ADD_FAILURE() << started.error().message;
      return nullptr;
    }
    return std::move(*started);
  }

  std::unique_ptr<store_test::RunningStore> store_ = std::make_unique<store_test::RunningStore>();
};

TEST_F(ArrivalsTest, NamesThoseThatDidNotComeAndThoseThatDoNotAnswer) {
  const auto first = start(0), second = start(1), third = start(2);  // None of rank 3.
  first->begin(7);
  second->begin(8);  // Has gone on, as the root of a broadcast does.
  third->begin(6);
  const Failure failure = first->explain(7, in(milliseconds{300}));
  EXPECT_EQ(failure.code, ErrorCode::timeout);
  EXPECT_EQ(failure.message, describe(members(0)[2]) + " did not come to it; " +
                                 describe(members(0)[3]) +
                                 " does not answer: stopped, or out of reach");
  EXPECT_EQ(failure.ranks, (std::vector{GlobalRank{12}, GlobalRank{13}}));
}

TEST_F(ArrivalsTest, OneThatNeverBeganAnythingIsBehind) {
  const auto first = start(0), second = start(1), third = start(2), fourth = start(3);
  for (const auto* const rank : {&first, &third, &fourth})
    (*rank)->begin(1);
  const Failure failure = third->explain(1, in(seconds{60}));
  EXPECT_EQ(failure.message, describe(members(0)[1]) + " did not come to it");
  EXPECT_EQ(failure.ranks, std::vector{GlobalRank{11}});
}

TEST_F(ArrivalsTest, SaysWhenAllHaveCome) {
  std::vector<std::unique_ptr<Arrivals>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(start(rank));
    ranks.back()->begin(3);
  }
  const Failure failure = ranks[1]->explain(3, in(seconds{60}));
  EXPECT_THAT(failure.message, StartsWith("all ranks have come to it"));
  EXPECT_TRUE(failure.ranks.empty());
}

TEST_F(ArrivalsTest, AllMayAskAtTheSameTimeAndLearnTheSame) {
  std::vector<std::unique_ptr<Arrivals>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(start(rank));
    ranks.back()->begin(rank == 3 ? 4 : 5);
  }
  std::vector<std::string> told(4);
  std::vector<std::thread> asking;
  for (size_t rank = 0; rank < 4; ++rank)
    asking.emplace_back(
        [&, rank] { told[rank] = ranks[rank]->explain(5, in(seconds{60})).message; });
  for (std::thread& thread : asking)
    thread.join();
  EXPECT_EQ(told, std::vector<std::string>(4, describe(members(0)[3]) + " did not come to it"));
}

TEST_F(ArrivalsTest, AStoreThatIsGoneIsSaidInTime) {
  const auto first = start(0);
  first->begin(1);
  store_.reset();
  const Failure failure = first->explain(1, in(milliseconds{200}));
  EXPECT_EQ(failure.code, ErrorCode::timeout);
  EXPECT_FALSE(failure.message.empty());
  EXPECT_TRUE(failure.ranks.empty());
}

}  // namespace
}  // namespace muster::worker
