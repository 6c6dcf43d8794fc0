// Whom the store serves next and how much it reads of them: so that a client that asks for little
// waits only for a bounded amount of others' work, whatever thousands of others ask for. The more
// are ready at once the less is read of each. Whoever used its share up is greedy: the next time it
// is ready it stands in a queue, of which two are served for each batch of the others, with a
// larger share, since they come round seldom. The caller asks the kernel and judges who is greedy;
// this has no I/O. Events that a turn had no time for come first in the next: asking the kernel
// again would let the busy ones overtake the others for ever.
//
// What it buys, on 2 cores: served in epoll_wait()'s order instead, a ping that comes at a random
// moment while 2,000 clients pipeline waits 10 times as long, and the longest one 4 times. All of
// those together get half as much done as they would without it.
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
    size_t share;     // Bytes to be read at most.
    bool from_batch;  // Not from the queue: it may have to go there.

    friend bool operator==(const Visit&, const Visit&) = default;
  };

  // Nobody: the caller asks who is ready, if that is worth it.
  std::optional<Visit> next() {
    if (next_ < count_) return Visit{batch_[next_++], share(kBatchBytes, count_, kShareMin), true};
    if (queue_.empty() || queue_visits_ == 0) return std::nullopt;
    queue_visits_--;
    const Visit visit{queue_.front(), share(kQueueBytes, queue_.size(), kQueueShareMin), false};
    queue_.pop_front();
    return visit;
  }

  void queue_up(uint64_t tag) { queue_.push_back(tag); }

  // A turn begins with a look at who is ready.
  void begin_turn() { asked_ = false; }

  // `requests`: how many were served so far. A batch with few of them is probably all there is.
  bool worth_asking(uint64_t requests) const {
    return !asked_ || requests - requests_before_ >= kWorthAnother || !queue_.empty();
  }

  // The answer. False: there is nobody to be served. REQUIRES: next() said nobody.
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
  int queue_visits_ = 0;  // Still to be made before the next batch.
  bool asked_ = false;    // In this turn.
  uint64_t requests_before_ = 0;
};

}  // namespace muster
