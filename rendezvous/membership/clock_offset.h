// How far the host's steady clock is ahead of ours, and with what error, measured by heartbeats: a
// report is sent at `sent`, the host reads its clock to answer, and the answer arrives at `heard`.
// However the delay is divided, the host's reading lies between the two, so their middle is wrong
// by at most half of it (Cristian, "Probabilistic clock synchronization", 1989). The best exchange
// counts; its error grows by the possible drift of the two clocks since. Pure.
#pragma once

#include <optional>

#include "rendezvous/base/time.h"

namespace muster {

class ClockOffset {
 public:
  struct Reading {
    Instant at{};
    Duration error{};
  };

  void exchange(Instant sent, Instant host, Instant heard) {
    if (heard < sent) return;
    const Duration error = (heard - sent) / 2;
    if (known_ && error > error_at(heard)) return;
    offset_ = host - (sent + error);
    error_ = error;
    measured_ = heard;
    known_ = true;
  }

  // Call for another host: it has another clock.
  void forget() { known_ = false; }

  // Returns the host's time at `when` of ours; nullopt before the first exchange.
  std::optional<Reading> host_time(Instant when) const {
    if (!known_) return std::nullopt;
    return Reading{when + offset_, error_at(when)};
  }

  // Returns our time at `host` of the host's; nullopt before the first exchange.
  std::optional<Reading> own_time(Instant host) const {
    if (!known_) return std::nullopt;
    return Reading{host - offset_, error_at(host - offset_)};
  }

 private:
  // Quartz: about 50 millionths on either side. While NTP slews faster, later exchanges are better.
  static constexpr int64_t kDriftPart = 10'000;

  Duration error_at(Instant when) const {
    const Duration since = when > measured_ ? when - measured_ : measured_ - when;
    return error_ + since / kDriftPart;
  }

  bool known_ = false;
  Duration offset_{};
  Duration error_{};
  Instant measured_{};
};

}  // namespace muster
