// Bounds what one agent's datagrams cost the host and other agents: a token bucket, kept as the
// time at which it will be full again. A datagram is charged for each receiver, at most a full
// bucket, and passes if anything is left, so even the largest one to all nodes passes now and then.
// Pure; one per connection.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster {

class DatagramBudget {
 public:
  static constexpr size_t kBytesInSecond = size_t{512} << 10;
  static constexpr size_t kBurstBytes = size_t{1} << 20;
  // Charged besides the payload: handling a datagram costs as much as copying this much.
  static constexpr size_t kOverheadBytes = 256;

  bool is_spent(Instant now) const { return earned_at_ >= now + time_for(kBurstBytes); }

  void spend(Instant now, size_t payload_bytes, size_t receivers) {
    const size_t bytes = (payload_bytes + kOverheadBytes) * std::max(receivers, size_t{1});
    earned_at_ = std::max(earned_at_, now) + time_for(std::min(bytes, kBurstBytes));
  }

 private:
  static constexpr Duration time_for(size_t bytes) {
    return static_cast<int64_t>(bytes) * Duration(std::chrono::seconds(1)) /
           static_cast<int64_t>(kBytesInSecond);
  }

  Instant earned_at_{};
};

}  // namespace muster
