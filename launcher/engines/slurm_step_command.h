// The command by which muster starts itself on all nodes of a Slurm job: one task on each, with all
// of the node's CPUs and GPUs that the job has. The variables of the script are srun's defaults,
// and some of them ask for something else; and what Slurm's other programs print. Facts from Slurm
// 22.05. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

// Hidden commands of muster, with the job's id after them (agent/launch_spec.h, EngineSpec).
// --internal-slurm-requeue JOB [if-preempted] [WHY NOT]
inline constexpr const char* kSlurmTimeLeftFlag = "--internal-slurm-time-left";
inline constexpr const char* kSlurmRequeueFlag = "--internal-slurm-requeue";
inline constexpr const char* kIfPreempted = "if-preempted";

// ---- the time that Slurm leaves a job (slurm_time.cc), in what squeue and scontrol print: their
// text is meant for people, but Slurm 22.05 has no other in every build. What is not as expected is
// no time: muster then says what was printed instead of guessing

// Seconds, of "[days-]hours:minutes:seconds", "minutes:seconds" or "seconds" (`squeue -o %L`); 0
// where the job is over its limit. nullopt: it is no time.
std::optional<int64_t> slurm_seconds(std::string_view text);

// As `squeue -o %L` calls a job without a limit.
bool is_unlimited(std::string_view text);

struct SlurmJobState {
  bool runs = false;          // Slurm has not begun to end it.
  bool is_preempted = false;  // Another job is to have its nodes.
  friend bool operator==(const SlurmJobState&, const SlurmJobState&) = default;
};

// Reads the line that `scontrol show job -o` prints.
SlurmJobState slurm_job_state(std::string_view line);

}  // namespace muster
