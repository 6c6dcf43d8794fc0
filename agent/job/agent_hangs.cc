// Watches the ranks of an attempt for hangs, and says what is found.
#include <algorithm>

#include <fmt/format.h>

#include "agent/hang/hang_text.h"
#include "agent/hang/limits_of_spec.h"
#include "agent/job/agent_loop.h"
#include "agent/report/text.h"

namespace muster {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace

// A node sees its own ranks only: it cannot judge a job that has others.
void AgentLoop::watch_for_hangs() {
  if (!rings_.wanted() || spec_.hang.off || round_.world_size != setup_.workers) return;
  if (!hang_watch_) {
    hang_watch_.emplace(
        io_, rings_, site_names_, hang::limits_of(spec_.hang),
        hang::HangWatch::Callbacks{
            [this](const hang::Effect& effect) { on_hang(effect); },
            [this](int local_rank) { return stack_reader_.holds(processes_.pid(local_rank)); }});
  }
  hang_watch_->begin(setup_.workers);
}

void AgentLoop::on_hang(const hang::Effect& effect) {
  const std::string text = std::visit(
      Overloaded{
          [](const hang::LookAt&) { return std::string(); },
          [this](const hang::Notice& notice) { return record_->hang_notice(notice); },
          [this](const hang::WaitEnded& ended) { return record_->wait_ended(ended); },
          [this](const hang::Verdict& verdict) { return record_->hang_verdict(verdict); },
          [this](const hang::Withdrawn& withdrawn) { return record_->hang_withdrawn(withdrawn); },
          [this](const hang::Explained& explained) {
            record_->hang_explained(explained);
            return std::string();
          }},
      effect);
  if (!text.empty()) say(text);
  if (const auto* const notice = std::get_if<hang::Notice>(&effect))
    tell_stacks(notice->finding, /*quiet=*/true);
  // After a failure the ranks are about to be stopped.
  const auto* const verdict = std::get_if<hang::Verdict>(&effect);
  if (verdict != nullptr && !verdict->finding.has_failed)
    tell_stacks(verdict->finding, /*quiet=*/false);
}

// "all_reduce #17 of group 'world' for 3.2 s": what a rank had called when it ended; empty:
// nothing.
std::string AgentLoop::call_in_flight(int local_rank) const {
  const Instant now = to_instant(std::chrono::steady_clock::now());
  const RankRecords records =
      records_of(read_ring(local_rank, kCallsForSummary), now, kCallsForSummary);
  const auto in_flight = std::find_if(
      records.calls.rbegin(), records.calls.rend(),
      [](const CallLine& call) { return call.synchronous && call.state == "pending"; });
  if (in_flight == records.calls.rend()) return {};
  return fmt::format("{} #{} of group '{}' for {}", in_flight->operation, in_flight->ordinal,
                     in_flight->group,
                     duration_text(std::chrono::duration_cast<Duration>(
                         std::chrono::duration<double>(in_flight->called_ago_s))));
}

}  // namespace muster
