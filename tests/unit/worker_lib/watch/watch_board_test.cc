#include "worker_lib/watch/watch_board.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/wait_for.h"

namespace muster::worker {
namespace {

Watch::News news_of_rank(int rank) {
  return {Watch::News::Kind::died, GlobalRank{rank}, {}, {}};
}

using HeardRanks = std::vector<int>;

Watch::Listener keeping_in(HeardRanks& heard) {
  return [&heard](const Watch::News& news) { heard.push_back(news.rank.value); };
}

TEST(WatchBoard, EveryListenerGetsAllNewsOnceAndInOrder) {
  WatchBoard board;
  HeardRanks early, late;
  board.subscribe(keeping_in(early));
  board.publish(news_of_rank(1));
  board.publish(news_of_rank(2));
  board.subscribe(keeping_in(late));
  EXPECT_EQ(late, (HeardRanks{1, 2}));
  board.publish(news_of_rank(3));
  EXPECT_EQ(early, (HeardRanks{1, 2, 3}));
  EXPECT_EQ(late, (HeardRanks{1, 2, 3}));
}

TEST(WatchBoard, AnUnsubscribedListenerGetsNothingMore) {
  WatchBoard board;
  HeardRanks one, other;
  const int id = board.subscribe(keeping_in(one));
  board.subscribe(keeping_in(other));
  board.publish(news_of_rank(1));
  board.unsubscribe(id);
  board.unsubscribe(id);
  board.unsubscribe(99);
  board.publish(news_of_rank(2));
  EXPECT_EQ(one, HeardRanks{1});
  EXPECT_EQ(other, (HeardRanks{1, 2}));
}

TEST(WatchBoard, AListenerMayUnsubscribeItselfOrAnother) {
  WatchBoard board;
  HeardRanks first, second, last;
  int own = -1;
  int other = -1;
  own = board.subscribe([&](const Watch::News& news) {
    const std::string still_alive(100, 'x');  // The function must outlive its removal.
    board.unsubscribe(own);
    board.unsubscribe(other);
    EXPECT_EQ(still_alive, std::string(100, 'x'));
    first.push_back(news.rank.value);
  });
  other = board.subscribe(keeping_in(second));
  board.subscribe(keeping_in(last));
  board.publish(news_of_rank(1));
  board.publish(news_of_rank(2));
  EXPECT_EQ(first, HeardRanks{1});
  EXPECT_EQ(second, HeardRanks{}) << "it was gone before its turn";
  EXPECT_EQ(last, (HeardRanks{1, 2}));
}

TEST(WatchBoard, AListenerAddedDuringACallGetsThatNewsOnce) {
  WatchBoard board;
  HeardRanks inner;
  bool subscribed = false;
  board.subscribe([&](const Watch::News&) {
    if (!std::exchange(subscribed, true)) board.subscribe(keeping_in(inner));
  });
  board.publish(news_of_rank(1));
  board.publish(news_of_rank(2));
  EXPECT_EQ(inner, (HeardRanks{1, 2}));
}

TEST(WatchBoard, UnsubscribeWaitsForACallOnAnotherThread) {
  WatchBoard board;
  std::promise<void> called, gate;
  std::atomic<bool> asks = false;
  bool ended = false;
  const int id = board.subscribe([&](const Watch::News&) {
    called.set_value();
    gate.get_future().wait();
    ended = true;
  });
  std::thread publishing([&] { board.publish(news_of_rank(1)); });
  called.get_future().wait();
  std::thread leaving([&] {
    asks = true;
    board.unsubscribe(id);
    EXPECT_TRUE(ended);
  });
  while (!asks)
    std::this_thread::yield();
  test::pause_for(std::chrono::milliseconds(1), "it may wait for the listener by then");
  gate.set_value();
  publishing.join();
  leaving.join();
}

}  // namespace
}  // namespace muster::worker
