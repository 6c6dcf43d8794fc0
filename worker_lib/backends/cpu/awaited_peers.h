// The peers that the current collective waits for over links, and the latest calls; other ranks
// query both. Written by the caller's thread, read by any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "worker_lib/call_word.h"

namespace muster::worker {

class AwaitedPeers {
 public:
  explicit AwaitedPeers(int size) : words_((static_cast<size_t>(size) + 63) / 64) {}

  void enter(uint64_t number, const CallSignature& call) {
    const std::lock_guard lock(mutex_);
    calls_[number % kCallsKept] = {number, call};
  }
  std::vector<NumberedCall> calls() const {
    const std::lock_guard lock(mutex_);
    std::vector<NumberedCall> entered;
    for (const NumberedCall& one : calls_) {
      if (one.number > 0) entered.push_back(one);
    }
    return entered;
  }

  // Replaces the set of awaited peers. Empty: the call waits for no rank, or only within its node.
  void wait_for(std::span<const int> peers, std::span<const int> more = {}) {
    for (size_t word = 0; word < words_.size(); ++word)
      words_[word].store(bits_of(peers, word) | bits_of(more, word), std::memory_order_relaxed);
  }
  std::vector<int> peers() const {
    std::vector<int> made;
    for (size_t word = 0; word < words_.size(); ++word) {
      for (uint64_t bits = words_[word].load(std::memory_order_relaxed); bits != 0;
           bits &= bits - 1)
        made.push_back(static_cast<int>(word * 64) + __builtin_ctzll(bits));
    }
    return made;
  }

 private:
  static uint64_t bits_of(std::span<const int> peers, size_t word) {
    uint64_t bits = 0;
    for (const int peer : peers) {
      if (static_cast<size_t>(peer) / 64 == word) bits |= uint64_t{1} << (peer % 64);
    }
    return bits;
  }

  std::vector<std::atomic<uint64_t>> words_;
  mutable std::mutex mutex_;
  std::array<NumberedCall, kCallsKept> calls_;
};

}  // namespace muster::worker
