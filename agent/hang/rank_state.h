// The hang detector's knowledge of one rank: its newest digest and since when that is unchanged,
// its process state and since when, and its end. Drops old, repeated and impossible reports. Plain
// values; owned by the detector. Pure.
#pragma once

#include <optional>
#include <string>

#include "agent/hang/digest.h"
#include "agent/hang/life.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

struct RankState {
  std::optional<RankDigest> digest;  // The members of its groups are in the GroupTable.
  // Time of the first digest with the same calls as the newest.
  Instant unchanged_since{};

  Life life;
  Instant life_since{};  // Time of the earlier of the first two samples with that state.
  Instant life_seen{};   // Time of the last sample.

  std::optional<int> code;  // Set once it has ended.
  Instant ended{};

  Instant waited{};  // When it last waited for others.

  // Takes a newer digest; `news` becomes the one before it. Returns false if it is not newer.
  bool take(RankDigest& news, Instant now);
  // Notes that the digest still held at that time. Returns false if that is known.
  bool confirm(Instant at);
  // Takes the state of two samples, the later one taken `at`, `between` after the other. A state
  // seen again after a gap counts from these.
  void see(const Life& seen, Instant at, Duration between);
  void forget_life() { life = {}; }

  bool has_failed() const { return digest && digest->has_failed; }
  bool is_last() const { return digest && digest->is_last; }
  // Unknown if there was no sample for kLooksMissed times `between`.
  LifeState life_at(Instant now, Duration between) const;
};

inline constexpr int kLooksMissed = 4;

const GroupDigest* find_group(const RankDigest& digest, const std::string& id);

}  // namespace muster::hang
