#include "agent/job/stop_part.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/report/last_words.h"
#include "agent/report/text.h"
#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

constexpr size_t kErrorCharacters = 200;

}  // namespace

// The stop is recorded before its first signal: what the workers do after it may be its effect.
void StopPart::begin(int signal) {
  if (std::exchange(has_begun_, true)) return;
  parts_.hang_part.stop();
  std::vector<std::optional<Departure>> departures;
  for (int i = 0; i < job_.round().local_world_size; ++i) {
    departures.push_back(parts_.own_ranks.departure(i));
    if (departures.back() && is_spared(*departures.back())) spared_.insert(i);
  }
  parts_.output.read_to_the_end();
  parts_.output.mark_stop();
  parts_.record.stop_begins(
      signal, grace(), parts_.processes.look(),
      parts_.engine.workers_are_told() ? Duration(EngineSignals::kElsewhere) : Duration{0},
      std::move(departures));
}

// A rank that lost another one is a victim itself.
bool StopPart::is_spared(const Departure& departure) const {
  if (!may_spare_) return false;
  if (departure.kind == DepartureKind::left) return has_victim_;
  return !blame_in(departure.error);
}

void StopPart::stop(int signal) {
  begin(signal);
  parts_.processes.stop(signal, spared_);
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
    const std::string spared = spared_text(effect.live);
    job_.say(fmt::format("waiting for {} to end after {}; SIGKILL in {}", who,
                         spared.empty() ? signal_name(effect.signal) : spared,
                         duration_text(effect.left)));
  }
}

// "ValueError: loss is NaN (train.py:88 step)": what ends the first of the live ranks, if that is
// not our signal.
std::string StopPart::spared_text(const std::vector<int>& live) const {
  for (const int local_rank : live) {
    const auto departure =
        spared_.contains(local_rank) ? parts_.own_ranks.departure(local_rank) : std::nullopt;
    if (!departure) continue;
    const std::string error = departure->error.empty()
                                  ? "it closed its process groups"
                                  : clean_line(departure->error, kErrorCharacters);
    return departure->site.empty() ? error
                                   : fmt::format("{} ({})", error, clean_line(departure->site));
  }
  return {};
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
