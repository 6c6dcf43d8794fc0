// A rank's description of itself for the meeting: its process and its address. Does not change
// afterwards.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/members.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {

struct RankRecord {
  Peer peer;
  ProcessLife life;
  std::string secret_claim = {};  // See job_secret.h.

  std::string encode() const;
  // nullopt: malformed, or another version's.
  static std::optional<RankRecord> decode(std::string_view text);
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};

}  // namespace muster::worker
