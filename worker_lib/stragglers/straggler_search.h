// Queries the ranks of a job until it is known which of them hold up a call of this one, or time is
// up (straggler_report.h decides). Blocks the caller for the limit after its deadline; twice as
// long if a process that the kernel reports as running is slow to answer, on a busy machine.
#pragma once

#include <chrono>
#include <functional>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/stragglers/straggler_report.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

inline constexpr std::chrono::milliseconds kStragglerSearchLimit{400};

struct StragglerSearch {
  const Members& world;  // Indexed by rank of the job.
  Watch& watch;
  std::function<RankProgress()> own;
  // True if the result is no longer needed, since the group has failed meanwhile.
  std::function<bool()> over;
  // Limit for answers.
  std::chrono::milliseconds limit = kStragglerSearchLimit;
};

// Returns `suspected` (a time-out, a mismatch, or a peer's end) with the ranks to blame, if found.
Failure name_stragglers(const Failure& suspected, const StragglerQuery& question,
                        const StragglerSearch& setting);

}  // namespace muster::worker
