// The inputs and outputs of a WorkerGroup, one line each: for the transcripts of the simulator and
// the tests.
#pragma once

#include <string>

#include "agent/job/worker_group_events.h"

namespace muster::group {

// "Exited{attempt 0, rank 1, exited with 3}"
std::string to_text(const Event& event);
std::string to_text(const Effect& effect);
std::string to_text(const JobOutcome& outcome);

}  // namespace muster::group
