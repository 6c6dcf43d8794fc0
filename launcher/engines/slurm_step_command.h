// The command by which muster starts itself on all nodes of a Slurm job: one task on each, with all
// of the node's CPUs and GPUs that the job has. The variables of the script are srun's defaults,
// and some of them ask for something else. Facts from Slurm 22.05. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/process/worker_environment.h"
#include "launcher/engines/engine.h"

namespace muster {

struct SlurmStepCommand {
  std::vector<std::string> argv;  // "srun" first.
  Environment environment;

  std::string text() const;  // As a user would type it.
};

struct SlurmStepNames {
  std::string muster;  // The path of this program.
  std::string step;    // No other step of the job has this name.
  std::string token;   // For the agents of the step, if the user gives them none. Never in argv.
};

SlurmStepCommand slurm_step_command(const StepToStart& step, const SlurmStepNames& names,
                                    const std::vector<std::string>& args,
                                    const Environment& environment);

// The ids of the step with this name, of which a heterogeneous job has one for each part, in what
// `squeue -s -j JOB -h -o "%i %j"` prints.
std::vector<std::string> step_ids_in(std::string_view listing, std::string_view name);

}  // namespace muster
