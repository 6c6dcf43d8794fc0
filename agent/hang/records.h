// Records of one rank, as musterctl shows them and programs read them: flat values of the control
// protocol, with ages in seconds instead of times, which mean the same on another machine. Numbers
// are cut to 2^63 - 1, the most that JSON's readers hold. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace muster {

// Captured: its calls run as parts of CUDA graphs, uncounted.
enum class GroupState : uint8_t { unused, forming, ready, failed, closed, captured };
inline constexpr std::array<std::string_view, 6> kGroupStates{"unused", "forming", "ready",
                                                              "failed", "closed",  "captured"};

struct GroupLine {
  std::string name;  // The id if it has none.
  std::string id;
  std::string ranks;  // "0-3,7" in group order; empty: unknown.
  int size = 0;
  int own_rank = -1;
  GroupState state = GroupState::unused;
  int64_t called = 0;
  int64_t completed = 0;
  double state_ago_s = 0;
  double called_ago_s = 0;  // The last call; as state_ago_s if there was none.

  friend bool operator==(const GroupLine&, const GroupLine&) = default;
};

// Withdrawn: refused before anything was sent. Abandoned: its group was closed before it was
// complete. Unknown: pending or complete.
enum class CallState : uint8_t { pending, complete, failed, withdrawn, abandoned, unknown };
inline constexpr std::array<std::string_view, 6> kCallStates{"pending",   "complete",  "failed",
                                                             "withdrawn", "abandoned", "unknown"};
inline std::string_view name_of(CallState state) {
  return kCallStates[static_cast<size_t>(state)];
}
inline std::string_view name_of(GroupState state) {
  return kGroupStates[static_cast<size_t>(state)];
}

struct CallLine {
  std::string group;      // Its name; empty: it is gone.
  int64_t ordinal = 0;    // 0: a message that was not counted.
  std::string operation;  // "all_reduce"
  std::string call;       // "all_reduce (sum) of 262144 float32"
  int64_t count = 0;      // Elements.
  std::string type;
  std::string reduction;
  int root = -1;  // Group rank of the root or the peer; -1: none, any or unknown.
  int tag = 0;
  bool synchronous = false;
  CallState state = CallState::pending;
  double called_ago_s = 0;
  std::optional<double> took_s;  // nullopt: not ended, or unknown.
  std::string site;  // "train.py:88 step", "train+0x1a2b", "0x55d0c8a41a2b"; empty: unknown.

  friend bool operator==(const CallLine&, const CallLine&) = default;
};

struct SectionLine {
  std::string name;
  double entered_ago_s = 0;

  friend bool operator==(const SectionLine&, const SectionLine&) = default;
};

struct RankRecords {
  int rank = 0;
  pid_t pid = 0;        // The worker's.
  std::string summary;  // One line for people: what it is in, or why there is nothing.
  std::string source;   // "worker_lib", "python_hook" or "nccl_plugin"; empty: nothing is recorded.
  pid_t owner = 0;      // The process that records, in its own pid namespace.
  double attached_ago_s = 0;
  int64_t recorded = 0;         // Calls, dropped ones included.
  int64_t dropped = 0;          // Calls without a record: the slot was still being written.
  int64_t groups_left_out = 0;  // The ring had no room for them.
  int64_t garbage = 0;          // Entries that made no sense.
  std::string failure;          // What the library reported first; empty: nothing.
  std::string failed_group;
  double failed_ago_s = 0;
  std::vector<GroupLine> groups;
  std::vector<SectionLine> sections;  // Open ones, outermost first.
  // The call that it is in: the oldest pending synchronous one, else the oldest pending one, else
  // the last one.
  std::optional<CallLine> current;
  std::vector<CallLine> calls;  // The last ones, oldest first.

  friend bool operator==(const RankRecords&, const RankRecords&) = default;
};

}  // namespace muster
