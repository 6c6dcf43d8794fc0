#include "agent/job/stop_part.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/report/text.h"

namespace muster {

Duration StopPart::grace() const {
  return from_seconds(spec_.shutdown_timeout_s);
}

// The stop is recorded before its first signal: what the workers do after it may be its effect.
void StopPart::begin(int signal) {
  if (std::exchange(has_begun_, true)) return;
  parts_.hang_part.stop();
  parts_.output.read_to_the_end();
  parts_.output.mark_stop();
  parts_.record.stop_begins(
      signal, grace(), parts_.processes.look(),
      parts_.engine.workers_are_told() ? Duration(EngineSignals::kElsewhere) : Duration{0});
}

void StopPart::stop(int signal) {
  begin(signal);
  parts_.processes.stop(signal);
}

void StopPart::kill() {
  parts_.own_ranks.end_look();
  begin(SIGKILL);
  std::string whom;
  for (const ProcessEntry& process : parts_.processes.descendants()) {
    if (!is_over(process))
      whom += fmt::format("{}{} ({})", whom.empty() ? "" : ", ", process.pid, process.name);
  }
  // A user who wants the job to end now does not want to read this.
  const std::string left = callbacks_.is_killed()
                               ? std::string()
                               : parts_.record.grace_is_over(parts_.own_ranks.left_ranks());
  if (!left.empty()) job_.say(left);
  parts_.record.kill_sent(whom);
  parts_.processes.kill();
}

void StopPart::report(const group::ReportStopping& effect) {
  std::vector<int> ranks;
  for (int local_rank : effect.live)
    ranks.push_back(job_.round().base_rank + local_rank);
  const std::string who = ranks.empty() ? "processes that the ranks started" : ranks_text(ranks);
  const bool asked = effect.reason == group::StopReason::requested;
  if (effect.killing) {
    if (effect.left > Duration{0} && !parts_.processes.kill_is_refused()) {
      job_.say(fmt::format("{} got SIGKILL; giving up in {} if still alive", who,
                           duration_text(effect.left)));
    }
    return;
  }
  parts_.own_ranks.look_before_kill(effect, grace());
  if (effect.left >= grace()) {
    // The first line of the countdown. After a failure it is omitted: only a slow stop is reported.
    if (!asked || (parts_.engine.is_told() && callbacks_.another_says_it())) return;
    job_.say(fmt::format("{}: stopping {}; SIGKILL in {} (repeat to kill now)",
                         signal_name(effect.signal), who, duration_text(effect.left)));
  } else {
    job_.say(fmt::format("waiting for {} to end after {}; SIGKILL in {}", who,
                         signal_name(effect.signal), duration_text(effect.left)));
  }
}

void StopPart::report_leftovers(const group::ReportLeftovers& effect) {
  std::string names;
  const std::vector<ProcessEntry> left = parts_.processes.descendants();
  constexpr size_t kNamesMax = 8;
  for (size_t i = 0; i < std::min(left.size(), kNamesMax); ++i) {
    names += fmt::format("{}{} ({})", i == 0 ? "" : ", ", left[i].pid, left[i].name);
  }
  if (left.size() > kNamesMax) names += fmt::format(", and {} more", left.size() - kNamesMax);
  job_.say(
      fmt::format("all ranks have succeeded, but left processes running: {}; waiting up to {}, "
                  "then stopping them",
                  names, duration_text(effect.left)));
  parts_.record.note(JobEventKind::leftovers, names);
}

}  // namespace muster
