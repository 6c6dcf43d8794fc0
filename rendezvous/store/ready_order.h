// Which connection the store serves next and how much it reads from it, so that a client with few
// requests waits only for a bounded amount of others' work, whatever thousands of others send. The
// more connections are ready at once, the less is read from each. One that uses up its share is
// greedy: the next time it is ready it is put in a queue, from which two are served for each batch
// of the others, with a larger share because their turns are rare. The caller polls the kernel and
// decides which are greedy; this class does no I/O. Events that a turn had no time for are served
// first in the next: polling again would let busy connections overtake the others forever.
//
// What it gains, on 2 cores: in epoll_wait()'s order, a ping sent at a random moment while 2,000
// clients pipeline waits 10 times as long, and the longest one 4 times. The price: those clients
// together get half of the throughput that they would get without it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace muster {

class ReadyOrder {
 public:
  static constexpr size_t kBatchMax = 256;
  static constexpr size_t kShareMax = size_t{64} << 10;

  struct Visit {
    uint64_t tag;
    size_t share;     // Maximum bytes to read.
    bool from_batch;  // Not from the queue: it may have to be queued.

    friend bool operator==(const Visit&, const Visit&) = default;
  };

  // nullopt: the batch is done, and the caller polls again if worth_asking().
  std::optional<Visit> next() {
    if (next_ < count_) return Visit{batch_[next_++], share(kBatchBytes, count_, kShareMin), true};
    if (queue_.empty() || queue_visits_ == 0) return std::nullopt;
    queue_visits_--;
    const Visit visit{queue_.front(), share(kQueueBytes, queue_.size(), kQueueShareMin), false};
    queue_.pop_front();
    return visit;
  }

  void queue_up(uint64_t tag) { queue_.push_back(tag); }

  // Each turn starts with a poll for ready connections.
  void begin_turn() { asked_ = false; }

  // `requests`: the number served so far. After a batch with few, more is unlikely to be ready.
  bool worth_asking(uint64_t requests) const {
    return !asked_ || requests - requests_before_ >= kWorthAnother || !queue_.empty();
  }

  // Takes a poll's result. False: there is nothing to serve. REQUIRES: next() returned nullopt.
  template <typename Events>
  bool take_batch(const Events& events, size_t count, uint64_t requests) {
    for (size_t i = 0; i < count; i++)
      batch_[i] = events[i].data.u64;
    next_ = 0;
    count_ = count;
    queue_visits_ = kQueueVisits;
    asked_ = true;
    requests_before_ = requests;
    return count > 0 || !queue_.empty();
  }

 private:
  static constexpr size_t kBatchBytes = size_t{256} << 10;
  static constexpr size_t kShareMin = size_t{2} << 10;
  static constexpr size_t kQueueBytes = size_t{1} << 20;
  static constexpr size_t kQueueShareMin = size_t{16} << 10;
  static constexpr int kQueueVisits = 2;
  static constexpr uint64_t kWorthAnother = 4;

  static size_t share(size_t together, size_t ready, size_t least) {
    return std::clamp(together / ready, least, kShareMax);
  }

  std::array<uint64_t, kBatchMax> batch_{};
  size_t next_ = 0;
  size_t count_ = 0;
  std::deque<uint64_t> queue_;
  int queue_visits_ = 0;  // Left before the next batch.
  bool asked_ = false;    // Polled in this turn.
  uint64_t requests_before_ = 0;
};

}  // namespace muster
