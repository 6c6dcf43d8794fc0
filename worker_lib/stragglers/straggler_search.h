// Asks the ranks of a job which of them hold up a call of this one, until that is known or the time
// for it is over (straggler_report.h decides). Blocks the caller for the limit at most, after its
// deadline; twice as long if a process that the kernel reports as running is slow to answer: a busy
// machine is no reason to blame it.
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
  const Members& world;  // By rank of the job.
  Watch& watch;
  std::function<RankProgress()> own;
  // Whether the result is no longer needed, because the group has failed meanwhile.
  std::function<bool()> over;
  // How long to wait for answers.
  std::chrono::milliseconds limit = kStragglerSearchLimit;
};

// `suspected` is a time-out, a mismatch, or the end of a peer; returns it with the ranks to blame,
// as far as they can be found.
Failure name_stragglers(const Failure& suspected, const StragglerQuery& question,
                        const StragglerSearch& setting);

}  // namespace muster::worker
