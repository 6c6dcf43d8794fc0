// One node's report about its ranks to the node that runs the hang detector: all that is known of
// them now, so that a lost or late message only costs time. Plain values and their compact form:
// instants as ages, each text and each call once, ranks in the same state in one line. A message
// may leave a rank's digest out and say that the version sent before still holds; the sender counts
// versions. Pure; decoding treats its input as hostile.
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
  Instant at{};  // When the later of its two samples was taken.

  friend bool operator==(const RankLife&, const RankLife&) = default;
};

struct RankNews {
  int rank = 0;                      // Global.
  pid_t pid = 0;                     // The worker's; 0: unknown.
  std::string device;                // Label of its device; empty: none.
  uint64_t version = 0;              // The digest's; 0: it records nothing.
  Instant at{};                      // When the digest was last seen to hold.
  std::optional<RankDigest> digest;  // nullopt: that of `version`, sent before, still holds.
  std::optional<RankLife> life;      // The newest; nullopt: its process is not sampled.
  std::optional<int> code;           // Set once it has ended: ExitStatus::signed_code().

  friend bool operator==(const RankNews&, const RankNews&) = default;
};

struct NodeDigest {
  std::string host;    // The node's own name for itself.
  uint64_t heard = 0;  // Number of the newest finding received; 0: none.
  uint64_t jumps = 0;  // How often its clock jumped or it stood still.
  bool is_suspended = false;
  std::vector<RankNews> ranks;  // Some of the node's, or all, by rank.

  friend bool operator==(const NodeDigest&, const NodeDigest&) = default;
};

// Equal for digests that differ only in times and own ranks in the groups: records of the same
// calls may be read with slightly different times.
std::string shape_of(const RankDigest& digest);

// `now`: the sender's clock; ages are kept in whole microseconds. What is too long is cut.
std::string encode(const NodeDigest& digest, Instant now);
// `then`: the sender's `now` in the reader's clock. nullopt: not such a message.
std::optional<NodeDigest> decode_node_digest(std::string_view bytes, Instant then);

}  // namespace muster::hang
