// A rank's progress inside the library: its position in the calls of each of its groups, what its
// threads wait for there and from which ranks, and the failures it has met. Sent in answer to a
// rank that has timed out and looks for the stragglers (straggler_report.h).
//
// Calls that all members of a group make in one order form a lane: those on host memory and on GPU
// memory, the monitored barriers, and the two set-ups, which have one call each. All ranks are
// those of the job. Plain values and their codec; decoding treats its input as hostile.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/call_word.h"
#include "worker_lib/operation.h"

namespace muster::worker {

enum class Lane : uint8_t { host, device, monitored, host_set_up, device_set_up };
inline constexpr size_t kLanes = 5;
inline bool is_set_up(Lane lane) {
  return lane == Lane::host_set_up || lane == Lane::device_set_up;
}

// Maximum length of a list of ranks.
inline constexpr size_t kAwaitedMax = 256;

struct LaneProgress {
  uint64_t begun = 0;  // Number of the last call begun; from 1.
  uint64_t ended = 0;  // Last call ended; if below `begun`, call ended + 1 is in flight.
  std::string last;    // Name of the last call begun: "all_reduce".
  // True if a thread of the program waits for the call in flight; else only the library does.
  bool is_held = false;
  std::vector<int> awaited;         // Ranks that may hold up the call in flight.
  std::vector<NumberedCall> calls;  // The last begun, if known.

  bool is_under_way() const { return begun > ended; }
  // Returns this rank's call with that number; null: unknown.
  const CallSignature* call(uint64_t number) const;
  friend bool operator==(const LaneProgress&, const LaneProgress&) = default;
};

// A message that a thread of the program waits for.
struct TransferProgress {
  OpKind kind = OpKind::send;
  int peer = -1;  // -1: a receive from any.
  friend bool operator==(const TransferProgress&, const TransferProgress&) = default;
};

struct GroupProgress {
  std::string id;
  std::string name;
  std::array<LaneProgress, kLanes> lanes = {};
  std::vector<TransferProgress> transfers = {};
  std::vector<int> members = {};  // Set if a transfer is from any; else empty.

  const LaneProgress& lane(Lane which) const { return lanes[static_cast<size_t>(which)]; }
  LaneProgress& lane(Lane which) { return lanes[static_cast<size_t>(which)]; }
  friend bool operator==(const GroupProgress&, const GroupProgress&) = default;
};

// A failure that this rank has met and not overcome.
struct Trouble {
  std::vector<int> origin;
  std::chrono::milliseconds age{0};
  friend bool operator==(const Trouble&, const Trouble&) = default;
};

struct RankProgress {
  std::vector<GroupProgress> groups;
  std::vector<Trouble> troubles;

  const GroupProgress* group(std::string_view id) const;

  std::string encode() const;
  static std::optional<RankProgress> decode(std::string_view bytes);
  friend bool operator==(const RankProgress&, const RankProgress&) = default;
};

}  // namespace muster::worker
