#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "agent/process/helper_command.h"
#include "launcher/engines/slurm_step_command.h"
#include "launcher/slurm_step.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Less than the agent waits for this process.
constexpr auto kLimit = std::chrono::seconds(8);

int print_answer(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  return 0;
}

// The first line that a program printed, and without one its exit code.
std::string complaint_of(const char* program, const HelperOutcome& outcome) {
  const std::string_view text = trim(outcome.printed);
  if (text.empty()) return fmt::format("{} exited with {}", program, outcome.exit_code);
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

int slurm_time_left_child_main(const std::string& job, const Environment& environment) {
  const auto told = run_helper({"squeue", "-h", "-j", job, "-o", "%L"}, environment, kLimit,
                               HelperStderr::printed);
  if (!told) return print_answer(told.error().message);
  // A heterogeneous job has a line for each of its parts, which end together.
  const std::string_view printed = trim(told->printed);
  const std::string_view text = trim(printed.substr(0, printed.find('\n')));
  if (told->exit_code == 0 && is_unlimited(text)) return print_answer("none");
  const auto seconds = told->exit_code == 0 ? slurm_seconds(text) : std::nullopt;
  return print_answer(seconds ? std::to_string(*seconds) : complaint_of("squeue", *told));
}

// Slurm requeues a job only if it still runs when the time is over that a pre-emption leaves it.
int slurm_requeue_child_main(const std::string& job, bool if_preempted,
                             const Environment& environment) {
  const auto shown = run_helper({"scontrol", "show", "job", "-o", job}, environment, kLimit / 2,
                                HelperStderr::printed);
  if (!shown) return print_answer(shown.error().message);
  if (shown->exit_code != 0) return print_answer(complaint_of("scontrol", *shown));
  const SlurmJobState state = slurm_job_state(shown->printed);
  if (if_preempted && !(state.runs && state.is_preempted)) return 0;
  if (!state.runs) return print_answer("Slurm has ended it already");
  const auto told =
      run_helper({"scontrol", "requeue", job}, environment, kLimit / 2, HelperStderr::printed);
  if (!told) return print_answer(told.error().message);
  return print_answer(told->exit_code == 0 ? std::string("done") : complaint_of("scontrol", *told));
}

}  // namespace muster
