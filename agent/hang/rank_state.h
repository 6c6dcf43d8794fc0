// What the hang detector knows of one rank: its newest digest and since when it says the same, what
// its process does and since when, and its end. Older, repeated and impossible news is dropped
// here. Plain values; owned by the detector. Pure.
#pragma once

#include <optional>
#include <string>

#include "agent/hang/digest.h"
#include "agent/hang/life.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

struct RankState {
  std::optional<RankDigest> digest;  // The members of its groups are in the GroupTable.
  // When the first digest was taken that says of all calls what the newest one says.
  Instant unchanged_since{};

  Life life;
  Instant life_since{};  // The earlier one of the first two looks that saw it so.
  Instant life_seen{};   // The last look.

  std::optional<int> code;  // It has ended, with this code.
  Instant ended{};

  Instant waited{};  // When it was last seen waiting for others.

  // `news` becomes the digest before it. False, and nothing changes: it is not newer.
  bool take(RankDigest& news, Instant now);
  // The digest still held at that time. False, and nothing changes: that is no news.
  bool confirm(Instant at);
  // What two looks make, the later one taken `at`, `between` after the other. If it comes much
  // later than the ones before, it says nothing of the time between.
  void see(const Life& seen, Instant at, Duration between);
  void forget_life();

  bool has_failed() const { return digest && digest->has_failed; }
  bool is_last() const { return digest && digest->is_last; }
  // Unknown if it was not seen for a few looks.
  LifeState life_at(Instant now, Duration between) const;
};

inline constexpr int kLooksMissed = 4;

const GroupDigest* find_group(const RankDigest& digest, const std::string& id);

}  // namespace muster::hang
