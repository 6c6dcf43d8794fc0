// The watch's threads without a store: loops that share a secret, in one process. Small enough for
// every sanitizer; the events are simple, their timing is not.
#include "worker_lib/watch/watch_loop.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "rendezvous/base/random.h"
#include "tests/wait_for.h"
#include "worker_lib/watch/watch_board.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;
using News = Watch::News;
using Kind = News::Kind;

struct LoopRank {
  WatchBoard board;
  std::unique_ptr<WatchLoop> loop;
  Outcome<> started;
};

// Ranks on `nodes` nodes in turn, all in this process; nodes talk by TCP on loopback.
class Loops {
 public:
  Loops(int ranks, int nodes) : keys_{"of this job", random_bytes(16)}, nodes_(nodes) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string node = "node" + std::to_string(rank % nodes);
      world_.peers.push_back({{rank}, node, node, 100 + rank, "127.0.0.1"});
    }
    for (int rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<LoopRank>());
    for (int rank = 0; rank < ranks; ++rank)
      make(rank);
    std::vector<std::thread> threads;
    for (auto& rank : ranks_)
      threads.emplace_back([&rank] { rank->started = rank->loop->start(); });
    for (std::thread& thread : threads)
      thread.join();
    for (const auto& rank : ranks_)
      EXPECT_TRUE(rank->started.has_value());
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  LoopRank& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }

 private:
  void make(int rank) {
    WatchLoop::Options options;
    options.world = world_;
    options.world.me = rank;
    options.keys = keys_;
    options.unix_listener = std::move(*watch::listen_unix(watch::unix_name(keys_, rank)));
    if (nodes_ > 1) options.tcp_listener = std::move(*watch::listen_tcp("127.0.0.1", options.port));
    if (rank == 0) root_port_ = options.port;
    options.root_port = root_port_;
    options.deadline = std::chrono::steady_clock::now() + 60s;
    LoopRank& self = (*this)[rank];
    options.announce = [&self](const watch::Announce& told) { self.board.publish(told.news); };
    self.loop = std::move(*WatchLoop::make(std::move(options)));
  }

  const watch::WatchKeys keys_;
  const int nodes_;
  uint16_t root_port_ = 0;
  Members world_;
  std::vector<std::unique_ptr<LoopRank>> ranks_;
};

// Counts news by kind; the watch's thread calls it while the test's thread waits.
struct Count {
  std::atomic<int> died = 0, left = 0, aborted = 0;

  void hear(const News& news) {
    ++(news.kind == Kind::died ? died : news.kind == Kind::left ? left : aborted);
  }
  static bool reaches(const std::atomic<int>& count, int wanted) {
    return test::wait_for([&] { return count >= wanted; }, "so many news") && count == wanted;
  }
};

TEST(WatchLoop, AllRanksGetAllConcurrentNews) {
  constexpr int kRanks = 5, kThreads = 3, kGroups = 20;
  for (const int nodes : {1, 2}) {
    std::vector<Count> counts(kRanks);  // Outlives the loops, which hear of each other's end.
    Loops loops(kRanks, nodes);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      Count& count = counts[static_cast<size_t>(rank)];
      loops[rank].board.subscribe([&count](const News& news) { count.hear(news); });
      for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&loops, rank, thread] {
          for (int group = 0; group < kGroups; ++group)
            loops[rank].loop->tell({Kind::aborted,
                                    {rank},
                                    std::to_string(thread) + "." + std::to_string(group),
                                    {ErrorCode::aborted, "enough"}});
        });
    }
    for (std::thread& thread : threads)
      thread.join();
    for (const Count& count : counts)
      EXPECT_TRUE(Count::reaches(count.aborted, (kRanks - 1) * kThreads * kGroups));
  }
}

TEST(WatchLoop, ListenersSubscribeAndUnsubscribeWhileNewsArrive) {
  Count all;
  Loops loops(3, 1);
  std::atomic<bool> over = false;
  std::thread listeners([&] {
    while (!over) {
      Count count;
      const int id = loops[1].board.subscribe([&count](const News& news) { count.hear(news); });
      loops[1].board.unsubscribe(id);
    }
  });
  for (int group = 0; group < 100; ++group)
    loops[0].loop->tell({Kind::aborted, {0}, std::to_string(group), {ErrorCode::aborted, "x"}});
  loops[1].board.subscribe([&all](const News& news) { all.hear(news); });
  EXPECT_TRUE(Count::reaches(all.aborted, 100));
  over = true;
  listeners.join();
}

TEST(WatchLoop, TheOtherRanksHearOfADeathAndADeparture) {
  int worlds = 0;
  for (const int nodes : {1, 2, 3}) {
    for (int victim = 0; victim < 6; ++victim) {
      std::vector<Count> counts(6);
      Loops loops(6, nodes);
      const int leaver = (victim + 1 + nodes) % 6;
      for (int rank = 0; rank < 6; ++rank)
        loops[rank].board.subscribe(
            [&count = counts[static_cast<size_t>(rank)]](const News& news) { count.hear(news); });
      std::thread dies([&] { loops[victim].loop->stop(); });
      std::thread leaves([&] { loops[leaver].loop->leave(); });
      dies.join();
      leaves.join();
      for (int rank = 0; rank < 6; ++rank) {
        if (rank == victim || rank == leaver) continue;
        EXPECT_TRUE(Count::reaches(counts[static_cast<size_t>(rank)].died, 1)) << rank;
        EXPECT_TRUE(Count::reaches(counts[static_cast<size_t>(rank)].left, 1)) << rank;
      }
      ++worlds;
    }
  }
  std::printf("%d worlds\n", worlds);
}

TEST(WatchLoop, AStartCanBeInterruptedByAnotherThread) {
  Members world;
  for (int rank = 0; rank < 2; ++rank)
    world.peers.push_back({{rank}, "node", "node", 100 + rank, "127.0.0.1"});
  world.me = 0;
  WatchLoop::Options options;
  options.world = world;
  options.keys = {"of this job", random_bytes(16)};
  options.unix_listener = std::move(*watch::listen_unix(watch::unix_name(options.keys, 0)));
  options.deadline = std::chrono::steady_clock::now() + 60s;
  options.announce = [](const watch::Announce&) {};
  const auto loop = std::move(*WatchLoop::make(std::move(options)));
  std::thread outside([&loop] {
    loop->settle(tl::unexpected(Failure{ErrorCode::stopped, "the job was told to end"}));
  });
  const Outcome<> started = loop->start();
  outside.join();
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, ErrorCode::stopped);
}

}  // namespace
}  // namespace muster::worker
