// Hidden commands of muster that ask Slurm for something, in a process of their own: what they run
// may take its time, and an agent never waits. agent/launch_spec.h says what they print.
#pragma once

#include <string>

#include "agent/process/worker_environment.h"

namespace muster {

int slurm_time_left_child_main(const std::string& job, const Environment& environment);
int slurm_requeue_child_main(const std::string& job, bool if_preempted,
                             const Environment& environment);

}  // namespace muster
