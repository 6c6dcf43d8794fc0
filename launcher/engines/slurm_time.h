// The time that Slurm leaves a job, in what squeue and scontrol print. Their text is meant for
// people, but Slurm 22.05 has no other in every build. What is not as expected is no time: muster
// then says what was printed instead of guessing. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace muster {

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

// Of the line that `scontrol show job -o` prints.
SlurmJobState slurm_job_state(std::string_view line);

}  // namespace muster
