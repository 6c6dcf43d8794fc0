// Muster in a batch script or a shell with several reserved nodes starts itself on all of them, by
// one srun, and stands in for that step: what ends muster is passed on to the step.
#pragma once

#include <string>
#include <vector>

#include "agent/process/worker_environment.h"
#include "launcher/options.h"

namespace muster {

// `args`: of this launch, after the program's own name. Returns the exit code.
int run_slurm_step(const StepToStart& step, const std::vector<std::string>& args,
                   const Environment& environment);

}  // namespace muster
