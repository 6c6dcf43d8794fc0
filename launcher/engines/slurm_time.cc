#include "launcher/engines/slurm_step_command.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Far above any limit of Slurm's (a year), far below overflow.
constexpr int64_t kPartMax = 1'000'000'000;

std::optional<int64_t> part(std::string_view text) {
  const auto number = whole_number<int64_t>(text);
  if (!number || *number < 0 || *number > kPartMax) return std::nullopt;
  return number;
}

}  // namespace

std::optional<int64_t> slurm_seconds(std::string_view text) {
  text = trim(text);
  if (text.starts_with('-') && !text.starts_with("--"))
    return slurm_seconds(text.substr(1)) ? std::optional<int64_t>(0) : std::nullopt;
  int64_t days = 0;
  if (const size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto number = part(text.substr(0, dash));
    if (!number) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  int64_t seconds = 0;
  int parts = 0;
  for (const std::string_view word : split(text, ':')) {
    const auto number = part(word);
    if (!number || ++parts > 3) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return days * 86400 + seconds;
}

SlurmJobState slurm_job_state(std::string_view line) {
  SlurmJobState state;
  for (const std::string_view word : split(line, ' ')) {
    // SIGNALING: Slurm has decided to signal it, and not all of its nodes have answered yet.
    if (word == "JobState=RUNNING" || word == "JobState=SIGNALING") state.runs = true;
    if (word.starts_with("PreemptTime=") && word != "PreemptTime=None") state.is_preempted = true;
  }
  return state;
}

bool is_unlimited(std::string_view text) {
  text = trim(text);
  return text == "UNLIMITED" || text == "NOT_SET";
}

}  // namespace muster
