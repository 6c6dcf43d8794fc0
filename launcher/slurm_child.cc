#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "agent/process/helper_command.h"
#include "launcher/engines/slurm_step_command.h"
#include "launcher/slurm_step.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Shorter than the agent waits for this process. A busy controller is slow: MessageTimeout of
// slurm.conf is 10 s by default.
constexpr auto kTimeLeftLimit = std::chrono::seconds(8);
constexpr auto kRequeueLimit = std::chrono::seconds(14);  // Limit for each of its two programs.

int print_answer(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  return 0;
}

// The first line that a program printed, else its exit code.
std::string complaint_of(const char* program, const HelperOutcome& outcome) {
  const std::string_view text = trim(outcome.printed);
  if (text.empty()) return fmt::format("{} exited with {}", program, outcome.exit_code);
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

int slurm_time_left_child_main(const std::string& job, const Environment& environment) {
  const auto told = run_helper({"squeue", "-h", "-j", job, "-o", "%L"}, environment, kTimeLeftLimit,
                               HelperStderr::printed);
  if (!told) return print_answer(told.error().message);
  // A heterogeneous job has a line for each part; the parts end together.
  const std::string_view printed = trim(told->printed);
  const std::string_view text = trim(printed.substr(0, printed.find('\n')));
  if (told->exit_code == 0 && is_unlimited(text)) return print_answer("none");
  const auto seconds = told->exit_code == 0 ? slurm_seconds(text) : std::nullopt;
  return print_answer(seconds ? std::to_string(*seconds) : complaint_of("squeue", *told));
}

// Checks the job's state because `scontrol requeue` would also requeue a job that its user has
// cancelled. Slurm itself requeues a pre-empted job only if it still runs at the end of the grace,
// and from then on does not show it as pre-empted.
int slurm_requeue_child_main(const std::vector<std::string>& words,
                             const Environment& environment) {
  const std::string& job = words.front();
  const bool if_preempted = words.size() > 1 && words[1] == kIfPreempted;
  const bool is_refused = words.size() > (if_preempted ? 2 : 1);
  const auto shown = run_helper({"scontrol", "show", "job", "-o", job}, environment, kRequeueLimit,
                                HelperStderr::printed);
  const char* const unknown = if_preempted ? "whether it was pre-empted is unknown: " : "";
  if (!shown) return print_answer(unknown + shown.error().message);
  if (shown->exit_code != 0) return print_answer(unknown + complaint_of("scontrol", *shown));
  const SlurmJobState state = slurm_job_state(shown->printed);
  if (if_preempted && !state.is_preempted) return 0;
  if (!state.runs) return print_answer("Slurm has ended it already");
  if (is_refused) return print_answer(words.back());
  const auto told =
      run_helper({"scontrol", "requeue", job}, environment, kRequeueLimit, HelperStderr::printed);
  if (!told) return print_answer(told.error().message);
  return print_answer(told->exit_code == 0 ? std::string("done") : complaint_of("scontrol", *told));
}

}  // namespace muster
