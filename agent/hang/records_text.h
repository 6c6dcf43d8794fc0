// Makes the values of records.h from a rank's ring, and their text for people.
//
//   rank 2 (pid 4710): between calls for 3.2 s; last: barrier #17 of group 'world', called at
//     train.py:80 step
//   rank 3 (pid 4711): in all_reduce #1042 of group 'world' for 12.4 s: all_reduce (sum) of 262144
//     float32, called at train.py:88 step
//   rank 5 (pid 4713): no recorder attached (...)
//
// Pure: the agent makes the values, musterctl prints them, and trusts none of their text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/hang/records.h"
#include "agent/hang/ring_reader.h"
#include "rendezvous/base/time.h"

namespace muster {

// Number of last calls that a summary needs.
inline constexpr size_t kCallsForSummary = 256;

struct RankRing {
  int rank = 0;
  pid_t pid = 0;
  std::optional<RecordedState> state;
  std::vector<RecordedCall> calls;  // The last kCallsForSummary, or more.
  std::string why_none;             // Why there is no state; empty: no process has attached.
};

// "all_reduce #1042 of group 'world'"; without a number if it has none.
std::string call_name(const CallLine& call);

// Holds the last `calls_max` calls.
RankRecords records_of(const RankRing& ring, Instant now, size_t calls_max);

// A line for each rank; with `details`, also its groups and calls.
std::string records_text(const std::vector<RankRecords>& ranks, bool details);

}  // namespace muster
