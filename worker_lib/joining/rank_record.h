// What a rank says of itself when the ranks meet: which process it is, and where it is reached.
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

  std::string encode() const;
  // Nothing for anything else, records of other versions included.
  static std::optional<RankRecord> decode(std::string_view text);
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};

}  // namespace muster::worker
