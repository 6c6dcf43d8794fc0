// Runs Slurm's own programs: srun for muster's step; squeue, scancel and scontrol for questions and
// signals. All calls block.
#pragma once

#include <string>
#include <vector>

#include "agent/process/worker_environment.h"
#include "launcher/options.h"

namespace muster {

// Starts muster on all reserved nodes by one srun, from a batch script or a shell, and stands in
// for that step: passes signals on to it. `args`: this launch's, without the program's own name.
// Returns the exit code.
int run_slurm_step(const StepToStart& step, const std::vector<std::string>& args,
                   const Environment& environment);

// Hidden commands that query Slurm in processes of their own, since Slurm's programs are slow and
// an agent never waits. agent/launch_spec.h says what they print. `words`: what follows the flag.
int slurm_time_left_child_main(const std::string& job, const Environment& environment);
int slurm_requeue_child_main(const std::vector<std::string>& words, const Environment& environment);

}  // namespace muster
