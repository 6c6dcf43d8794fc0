// What goes into a WorkerGroup and comes out of it, as one line each: for the transcripts of the
// simulator and of the tests.
#pragma once

#include <string>

#include "agent/job/worker_group_events.h"

namespace muster::group {

// "Exited{attempt 0, rank 1, exited with 3}"
std::string to_text(const Event& event);
std::string to_text(const Effect& effect);
std::string to_text(const JobOutcome& outcome);

}  // namespace muster::group
