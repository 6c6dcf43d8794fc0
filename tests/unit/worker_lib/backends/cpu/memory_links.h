// Links between ranks that are threads of the test: byte queues that accept and return random small
// portions, so that messages are cut in any place.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "worker_lib/backends/cpu/links.h"
#include "worker_lib/members.h"

namespace muster::worker {

// State shared by the links of all ranks.
struct MemoryNetwork {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t changes = 0;
  std::map<std::pair<int, int>, std::deque<std::byte>> queues;  // From, to.
  std::map<std::pair<int, int>, bool> ended;
  size_t capacity = 4096;
};

class MemoryLinks final : public ByteLinks {
 public:
  MemoryLinks(MemoryNetwork& network, int me, unsigned seed)
      : network_(network), me_(me), random_(seed + static_cast<unsigned>(me)) {}

  Outcome<size_t> write(int peer, std::span<const iovec> parts) override {
    const std::lock_guard lock(network_.mutex);
    auto& queue = network_.queues[{me_, peer}];
    size_t moved = 0;
    size_t room = portion(network_.capacity - queue.size());
    for (const iovec& part : parts) {
      const size_t bytes = std::min(room, part.iov_len);
      const auto* from = static_cast<const std::byte*>(part.iov_base);
      queue.insert(queue.end(), from, from + bytes);
      room -= bytes;
      moved += bytes;
    }
    tell(moved);
    return moved;
  }

  Outcome<size_t> read(int peer, std::span<const iovec> parts) override {
    const std::lock_guard lock(network_.mutex);
    auto& queue = network_.queues[{peer, me_}];
    size_t moved = 0;
    size_t there = portion(queue.size());
    for (const iovec& part : parts) {
      const size_t bytes = std::min(there, part.iov_len);
      const auto end = queue.begin() + static_cast<std::ptrdiff_t>(bytes);
      std::copy(queue.begin(), end, static_cast<std::byte*>(part.iov_base));
      queue.erase(queue.begin(), end);
      there -= bytes;
      moved += bytes;
    }
    tell(moved);
    return moved;
  }

  size_t peek(int peer, std::span<std::byte> to) override {
    const std::lock_guard lock(network_.mutex);
    const auto& queue = network_.queues[{peer, me_}];
    const size_t bytes = std::min(queue.size(), to.size());
    std::copy_n(queue.begin(), bytes, to.begin());
    return bytes;
  }

  bool ended(int peer) const override {
    const std::lock_guard lock(network_.mutex);
    return network_.ended[{peer, me_}] && network_.queues[{peer, me_}].empty();
  }

  void observe() override {
    const std::lock_guard lock(network_.mutex);
    seen_ = network_.changes;
  }
  void arm(const Interest&) override {}
  void sleep(Deadline until, bool) override {
    std::unique_lock lock(network_.mutex);
    network_.changed.wait_until(lock, until, [&] { return network_.changes != seen_; });
  }
  void wake() override {
    const std::lock_guard lock(network_.mutex);
    tell(1);
  }

 private:
  // Returns a random part of `most`, zero only if `most` is.
  size_t portion(size_t most) {
    if (most <= 1 || random_() % 4 == 0) return most;
    return 1 + random_() % std::min<size_t>(most, network_.capacity / 6);
  }
  void tell(size_t moved) {
    if (moved == 0) return;
    ++network_.changes;
    network_.changed.notify_all();
  }

  MemoryNetwork& network_;
  int me_;
  std::mt19937 random_;
  uint64_t seen_ = 0;
};

inline Members memory_members(int size, int me) {
  Members members;
  for (int rank = 0; rank < size; ++rank)
    members.peers.push_back({GlobalRank{rank}, "node", "host", 100 + rank, "127.0.0.1"});
  members.me = me;
  return members;
}

}  // namespace muster::worker
