// A rank's description of itself for the meeting: which process it is, and where it is reached.
// Never changes after the meeting.
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
  std::string secret_word = {};  // See job_secret.h.

  std::string encode() const;
  // nullopt for anything else, including records of other versions.
  static std::optional<RankRecord> decode(std::string_view text);
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};

}  // namespace muster::worker
