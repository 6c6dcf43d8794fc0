// What one node tells the node that runs the hang detector about its ranks: all that is known of
// them now, so that a lost or late message costs time, and nothing else. Plain values, and their
// compact form: instants as ages, each text and each call once, ranks in one state in one line.
// Pure; decoding treats its input as hostile.
//
// A rank's digest has a version, which the sender counts: a message may leave out the digest and
// say that the one of that version still holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/hang/digest.h"
#include "agent/hang/life.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

struct RankLife {
  Life life;
  Instant at{};  // When the later one of two looks was taken.

  friend bool operator==(const RankLife&, const RankLife&) = default;
};

struct RankNews {
  int rank = 0;                      // Global.
  pid_t pid = 0;                     // The worker's; 0: unknown.
  std::string device;                // Label of its device; empty: none.
  uint64_t version = 0;              // Of the digest; 0: it records nothing.
  Instant at{};                      // When the digest was last seen to hold.
  std::optional<RankDigest> digest;  // Not given: that of `version`, sent before, still holds.
  std::optional<RankLife> life;      // The newest; not given: its process is not looked at.
  std::optional<int> code;           // It has ended, as ExitStatus::signed_code().

  friend bool operator==(const RankNews&, const RankNews&) = default;
};

struct NodeDigest {
  std::string host;    // The node's own name for itself.
  uint64_t heard = 0;  // The newest finding that this node was told of; 0: none.
  uint64_t jumps = 0;  // How often its clock has jumped, or it stood still.
  bool is_suspended = false;
  std::vector<RankNews> ranks;  // Some of the node's, or all, by rank.

  friend bool operator==(const NodeDigest&, const NodeDigest&) = default;
};

// Equal for digests that say the same but for times and their own places in the groups. Records of
// the same calls may be read with slightly different times.
std::string shape_of(const RankDigest& digest);

// `now`: the sender's clock; ages are kept in whole microseconds. What is too long is cut.
std::string encode(const NodeDigest& digest, Instant now);
// `then`: the sender's `now` in the reader's clock. nullopt: not such a message.
std::optional<NodeDigest> decode_node_digest(std::string_view bytes, Instant then);

}  // namespace muster::hang
