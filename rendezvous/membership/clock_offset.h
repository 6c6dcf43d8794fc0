// How far the host's steady clock is ahead of this machine's, and with what error, from the
// heartbeats of one connection: a report is sent at `sent`, the host reads its own clock when it
// answers, and the answer arrives at `heard`. However the delay is divided, the host's reading lies
// between the two, so the middle is wrong by at most half of the time that passed (Cristian,
// "Probabilistic clock synchronization", 1989). The best exchange counts; its error grows by what
// two clocks may have drifted apart since. Pure.
#pragma once

#include <algorithm>
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

  // Another host has another clock.
  void forget() { known_ = false; }

  // What the host's clock shows at `when` of ours; nullopt before the first exchange.
  std::optional<Reading> host_time(Instant when) const {
    if (!known_) return std::nullopt;
    return Reading{when + offset_, error_at(when)};
  }

  // What ours shows when the host's shows `host`; nullopt before the first exchange.
  std::optional<Reading> own_time(Instant host) const {
    if (!known_) return std::nullopt;
    return Reading{host - offset_, error_at(host - offset_)};
  }

 private:
  // Quartz is accurate to some 50 millionths, on either side. NTP may slew a clock faster for a
  // while; then later exchanges are the better ones.
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
