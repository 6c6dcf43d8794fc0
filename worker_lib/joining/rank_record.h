// What a rank says of itself when the ranks meet. Pure, but for own_record().
// Never changes after the meeting.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/joining/process_life.h"
#include "worker_lib/members.h"

namespace muster::worker {

struct RankRecord {
  Peer peer;
  ProcessLife life;

  std::string encode() const;
  // Nothing for anything else, records of other versions included.
  static std::optional<RankRecord> decode(std::string_view text);
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};

// Of this process.
RankRecord own_record(int rank, std::string address);

}  // namespace muster::worker
