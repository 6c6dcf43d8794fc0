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

void AgentLoop::watch_for_hangs() {
  if (!rings_.wanted() || spec_.hang.off) return;
  if (!hang_watch_) {
    hang::HangWatch::Callbacks callbacks;
    callbacks.found = [this](const hang::Effect& effect) { on_hang(effect); };
    callbacks.told = [this](std::string_view news) { on_hang_news(news); };
    callbacks.send = [this](int to, std::string payload) { send(to, std::move(payload)); };
    callbacks.is_held = [this](int local_rank) {
      return stack_reader_.holds(processes_.pid(local_rank));
    };
    callbacks.settled = [this] { on_hangs_settled(); };
    hang_watch_.emplace(io_, rings_, site_names_, hang::limits_of(spec_.hang),
                        std::move(callbacks));
    record_->set_places([this](int rank) {
      const hang::RemoteNodes::Place* const place = hang_watch_->place_of(rank);
      return place == nullptr ? hang::RankPlace{}
                              : hang::RankPlace{place->host, place->pid, place->device};
    });
  }
  hang_watch_->begin({.node_rank = round_.group_rank,
                      .nodes = round_.group_world_size,
                      .base_rank = round_.base_rank,
                      .workers = setup_.workers,
                      .world_size = round_.world_size,
                      .host = own_hostname()});
}

void AgentLoop::on_hang(const hang::Effect& effect) {
  const HangNews news = std::visit(
      Overloaded{
          [](const hang::LookAt&) { return HangNews(); },
          [this](const hang::Notice& notice) { return record_->hang_notice(notice); },
          [this](const hang::WaitEnded& ended) { return record_->wait_ended(ended); },
          [this](const hang::Verdict& verdict) { return record_->hang_verdict(verdict); },
          [this](const hang::Withdrawn& withdrawn) { return record_->hang_withdrawn(withdrawn); },
          [this](const hang::Explained& explained) {
            record_->hang_explained(explained);
            return HangNews();
          }},
      effect);
  tell_all(news);
  if (const auto* const notice = std::get_if<hang::Notice>(&effect))
    tell_stacks(notice->finding, /*quiet=*/true);
  // After a failure the ranks are about to be stopped.
  const auto* const verdict = std::get_if<hang::Verdict>(&effect);
  if (verdict != nullptr && !verdict->finding.has_failed)
    tell_stacks(verdict->finding, /*quiet=*/false);
}

// On every node of the job.
void AgentLoop::tell_all(const HangNews& news) {
  if (news.text.empty()) return;
  say(news.text);
  hang_watch_->publish(encode_hang_news(news));
}

// From the node that runs the detector.
void AgentLoop::on_hang_news(std::string_view bytes) {
  const std::optional<HangNews> news = decode_hang_news(bytes);
  if (!news) return;
  record_->take(*news);
  say(news->text);
}

// The first failure of the attempt is explained, as far as it can be.
void AgentLoop::on_hangs_settled() {
  if (const auto drained = std::exchange(after_settled_, nullptr)) drained();
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
