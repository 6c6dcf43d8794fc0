// Watches of several ranks in this process, over real sockets and a real store, and the news that
// they have got so far.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker::watch_test {

using namespace std::chrono_literals;
using News = Watch::News;

// The news of one rank; waits for more with a limit that only a broken watch reaches.
class Ear {
 public:
  void hear(const News& news) {
    {
      const std::lock_guard lock(mutex_);
      news_.push_back(news);
    }
    changed_.notify_all();
  }
  // The first `count` news.
  std::vector<News> wait(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, 20s, [&] { return news_.size() >= count; }))
        << "heard " << news_.size() << " of " << count;
    return news_;
  }
  std::vector<News> now() {
    const std::lock_guard lock(mutex_);
    return news_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<News> news_;
};

struct WatchedRank {
  std::unique_ptr<Watch> watch;
  std::optional<Failure> failure;
  std::shared_ptr<Ear> ear = std::make_shared<Ear>();
};

class WatchRanks {
 public:
  // `node_of`: the node of each rank. Several nodes talk by TCP on loopback.
  explicit WatchRanks(const std::vector<int>& node_of) {
    for (size_t rank = 0; rank < node_of.size(); ++rank) {
      Peer peer;
      peer.rank = {static_cast<int>(rank)};
      peer.node = peer.host = "node" + std::to_string(node_of[rank]);
      peer.pid = 100 + static_cast<int>(rank);
      peer.address = "127.0.0.1";
      world_.peers.push_back(peer);
    }
    ranks_.resize(node_of.size());
  }

  Watch::Options options(int rank, std::chrono::milliseconds limit = 30s) {
    Watch::Options options;
    options.world = world_;
    options.world.me = rank;
    options.secret = secret;
    Result<StoreClient> store = StoreClient::connect({"127.0.0.1", store_.port(), limit, limit});
    EXPECT_TRUE(store.has_value());
    options.store = store->with_prefix("watch");
    options.deadline = std::chrono::steady_clock::now() + limit;
    options.on_sigterm = StopPolicy::ignore;
    options.lives = lives;
    return options;
  }

  // Starts all of them at the same time, but those in `absent`.
  void start(std::chrono::milliseconds limit = 30s, const std::vector<int>& absent = {}) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      if (std::ranges::find(absent, rank) != absent.end()) continue;
      threads.emplace_back([this, rank, limit] { start_one(options(rank, limit)); });
    }
    for (std::thread& thread : threads)
      thread.join();
  }
  void start_one(Watch::Options options) {
    WatchedRank& self = (*this)[options.world.me];
    Outcome<std::unique_ptr<Watch>> watch = Watch::start(std::move(options));
    if (!watch) {
      self.failure = watch.error();
      return;
    }
    self.watch = std::move(*watch);
    self.watch->subscribe([ear = self.ear](const News& news) { ear->hear(news); });
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  WatchedRank& operator[](int rank) { return ranks_[static_cast<size_t>(rank)]; }
  // As if its process had ended: the sockets close without a message.
  void kill(int rank) { (*this)[rank].watch.reset(); }
  void leave(int rank) {
    (*this)[rank].watch->leave();
    (*this)[rank].watch.reset();
  }
  store_test::RunningStore& store() { return store_; }

  std::vector<ProcessLife> lives;  // By rank; empty: unknown.
  std::string secret = "of this job";

 private:
  store_test::RunningStore store_;
  Members world_;
  std::vector<WatchedRank> ranks_;
};

}  // namespace muster::worker::watch_test
