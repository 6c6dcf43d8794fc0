// Texts for stderr of what the hang detector finds: facts first, then where and what to do. Texts
// of workers are cleaned. The caller prepends "muster: "; only a verdict has further lines, which
// are indented. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "agent/hang/detector.h"
#include "agent/hang/stragglers.h"

namespace muster::hang {

// The place of a rank, as far as known.
struct RankPlace {
  std::string host;    // Empty: unknown, or the job has one node.
  pid_t pid = 0;       // 0: unknown.
  std::string device;  // Label of its device; empty: none.
};
using PlaceOf = std::function<RankPlace(int rank)>;

// "rank 5 (node-b, GPU 1, pid 4711)"
std::string described_rank(int rank, const RankPlace& place);

// "all_reduce #17 of group 'world'", "forming group 'tp'", "recv from rank 3 in group 'pp'".
std::string call_text(const Operation& operation);

// The finding's operation without its place: "all_reduce (sum) of 262144 float32",
// "recv from rank 3", "forming the group".
std::string operation_text(const Finding& finding);

// "7 ranks wait for rank 5 in all_reduce #1042 of group 'world', for 12.4 s"
std::string status_text(const Status& status, Instant now);

std::string notice_text(const Finding& finding, const PlaceOf& place_of);
std::string wait_ended_text(const WaitEnded& ended, const Finding& notice);

// The verdict in one line.
std::string verdict_line(const Finding& finding, const PlaceOf& place_of);
// The line and what helps to find the fault. `job`: its name for musterctl. `goes_on`: no rank
// fails.
std::string verdict_text(const Finding& finding, const PlaceOf& place_of, const std::string& job,
                         bool goes_on = true);

// A mismatch as the cause of the failure of one of its ranks; follows "rank 3 ": "called all_reduce
// #17 of group 'world' with 8 float32, the others with 16 float32".
std::string mismatch_cause(const Finding& finding, int rank);

// A hang as the cause of the failure of one of its ranks; follows "rank 5 ".
std::string hang_cause(const Finding& finding, int rank);

// The ranks that made others wait, in one line.
std::string stragglers_text(const Stragglers& stragglers, const PlaceOf& place_of);

std::string withdrawn_text(const Withdrawn& withdrawn, const Finding& verdict);

}  // namespace muster::hang
