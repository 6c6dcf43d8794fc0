// Arrival times of the bytes that a stream's TailBuffer still holds, to order the last output of
// two workers. Bytes within a millisecond share one entry: constant printing costs a few KiB. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "rendezvous/base/time.h"

namespace muster {

class ArrivalTimes {
 public:
  static constexpr size_t kEntriesMax = 512;

  // `total`: all bytes received so far, including the new ones. `now` never goes back.
  void add(uint64_t total, Instant now) {
    if (!entries_.empty() && now - entries_.back().first_at < kOneMoment) {
      entries_.back().total = total;
      return;
    }
    entries_.push_back({total, now});
    if (entries_.size() > kEntriesMax) entries_.pop_front();
  }

  // Returns when the byte at `offset` of the stream arrived, to a millisecond; a later time if its
  // entry was dropped; nullopt if it has not arrived.
  std::optional<Instant> at(uint64_t offset) const {
    const auto entry = std::ranges::upper_bound(entries_, offset, {}, &Entry::total);
    if (entry == entries_.end()) return std::nullopt;
    return entry->first_at;
  }

 private:
  static constexpr Duration kOneMoment = std::chrono::milliseconds(1);

  struct Entry {
    uint64_t total = 0;
    Instant first_at{};
  };
  std::deque<Entry> entries_;
};

// The arrival time to assume for bytes that came while nothing was read, before those of
// `followers` other streams: epoll reports streams in the order in which they became readable, but
// not when. The times keep that order, further apart than what counts as the same moment. Never
// before `since`, the end of the last poll.
inline Instant time_after_standstill(Instant since, Instant now, size_t followers) {
  constexpr Duration kApart = std::chrono::milliseconds(2);
  const auto behind = static_cast<Duration::rep>(followers);
  const Duration room = std::max(now - since, Duration{0}) / (behind + 1);
  return now - std::min(kApart, room) * behind;
}

}  // namespace muster
