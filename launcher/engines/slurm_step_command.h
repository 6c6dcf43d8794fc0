// Builds the command by which muster starts itself on all nodes of a Slurm job, one task on each
// with all of the job's CPUs and GPUs there, without those variables of the script that would make
// srun do something else. Parses the output of Slurm's other programs. As of Slurm 22.05. Pure.
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
  std::string step;    // A step name that is unique in the job.
  std::string token;   // Token for the agents if the user gives none. Never in argv.
};

SlurmStepCommand slurm_step_command(const StepToStart& step, const SlurmStepNames& names,
                                    const std::vector<std::string>& args,
                                    const Environment& environment);

// The ids of the step with this name (one for each part of a heterogeneous job) in the output of
// `squeue -s -j JOB -h -o "%i %j"`.
std::vector<std::string> step_ids_in(std::string_view listing, std::string_view name);

// Hidden commands of muster, followed by the job's id (agent/launch_spec.h, EngineSpec):
// --internal-slurm-time-left JOB, --internal-slurm-requeue JOB [if-preempted] [WHY NOT]
inline constexpr const char* kSlurmTimeLeftFlag = "--internal-slurm-time-left";
inline constexpr const char* kSlurmRequeueFlag = "--internal-slurm-requeue";
inline constexpr const char* kIfPreempted = "if-preempted";

// ---- slurm_time.cc: the output of squeue and scontrol, which is meant for people, but Slurm 22.05
// has no other in every build. If it is not as expected, muster shows it instead of guessing

// Seconds from "[days-]hours:minutes:seconds", "minutes:seconds" or "seconds" (`squeue -o %L`); 0
// for a job over its limit. nullopt if the text is not a time.
std::optional<int64_t> slurm_seconds(std::string_view text);

// True for what `squeue -o %L` prints for a job without a limit.
bool is_unlimited(std::string_view text);

struct SlurmJobState {
  bool runs = false;          // True until Slurm begins to end it.
  bool is_preempted = false;  // True if another job is to have its nodes.
  friend bool operator==(const SlurmJobState&, const SlurmJobState&) = default;
};

// Parses the line that `scontrol show job -o` prints.
SlurmJobState slurm_job_state(std::string_view line);

}  // namespace muster
