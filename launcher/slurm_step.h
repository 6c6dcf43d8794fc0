// What muster does with Slurm's own programs: its step by srun, and its questions to squeue and
// scontrol. All of it blocks.
#pragma once

#include <string>
#include <vector>

#include "agent/process/worker_environment.h"
#include "launcher/options.h"

namespace muster {

// Muster in a batch script or a shell with several reserved nodes starts itself on all of them, by
// one srun, and stands in for that step: what ends muster is passed on to the step.
// `args`: of this launch, after the program's own name. Returns the exit code.
int run_slurm_step(const StepToStart& step, const std::vector<std::string>& args,
                   const Environment& environment);

// Hidden commands of muster that ask Slurm for something, in a process of their own: what they run
// may take its time, and an agent never waits. agent/launch_spec.h says what they print.
int slurm_time_left_child_main(const std::string& job, const Environment& environment);
// `words`: what follows the flag.
int slurm_requeue_child_main(const std::vector<std::string>& words, const Environment& environment);

}  // namespace muster
