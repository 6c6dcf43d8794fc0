// The words of Member: its status, its lines for people, and its transcript.
#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using membership::Phase;

std::string Member::waiting_text(Instant now) const {
  std::string text =
      fmt::format("waiting for the host of the job at {}: {}", options_.endpoint, trouble_);
  if (going() || give_up_at_ == kNever) return text;
  const Duration left = std::max(Duration::zero(), give_up_at_ - now);
  return text + fmt::format("; gives up in {}", membership::whole_seconds(left));
}

std::string Member::no_host_text() const {
  return fmt::format(
      "no contact with the host of the job at {} for {} ({}): {}; see that the node which hosts "
      "the "
      "job runs, and that this endpoint is its address as seen from here",
      options_.endpoint, membership::whole_seconds(reach_timeout()),
      reach_timeout() == options_.join.join_timeout ? "the join time-out" : "read_timeout",
      trouble_);
}

std::string Member::phase_text() const {
  switch (report_.phase) {
    case Phase::ready:
      return wait_text_.empty() ? "waiting for the round to form"
                                : "waiting for the round to form: " + wait_text_;
    case Phase::running:
      return fmt::format("in round {} as node {} of {}", report_.epoch, join_.last_rank,
                         join_.last_nodes);
    case Phase::stopping:
      return fmt::format("stopping the workers of round {}", report_.epoch);
    case Phase::done:
      return fmt::format("done with round {}, waiting for the other nodes", report_.epoch);
    case Phase::leaving:
      break;
  }
  return report_.reaped ? "leaving" : "leaving, stopping the workers";
}

std::string Member::status(Instant now) const {
  if (link_ == Link::idle) return "not begun";
  if (link_ == Link::over) return "over";
  const std::string phase = ended_ ? "the job has ended" : phase_text();
  if (link_ == Link::joined) return phase;
  return phase + "; " + waiting_text(now);
}

namespace member {

namespace {

std::string_view stop_why_name(StopWhy why) {
  constexpr std::string_view kNames[] = {"failure", "lost", "left", "joined", "host"};
  return kNames[static_cast<size_t>(why)];
}

std::string describe_event(const Begin&) {
  return "Begin";
}
std::string describe_event(const ConnectionUp& e) {
  return fmt::format("ConnectionUp{{to {} from {}}}", e.dialled, e.advertised);
}
std::string describe_event(const ConnectionFailed& e) {
  return fmt::format("ConnectionFailed{{{}{}{}}}", e.error.message, e.refused ? ", refused" : "",
                     e.fatal ? ", fatal" : "");
}
std::string describe_event(const ConnectionLost& e) {
  return fmt::format("ConnectionLost{{{}}}", e.why);
}
std::string describe_event(const Received& e) {
  return fmt::format("Received{{{}}}", membership::to_text(e.message));
}
std::string describe_event(const ReadyForRound&) {
  return "ReadyForRound";
}
std::string describe_event(const WorkersDone& e) {
  return fmt::format("WorkersDone{{{}}}", e.epoch);
}
std::string describe_event(const WorkerFailed& e) {
  return fmt::format("WorkerFailed{{{}, rank {}, {}}}", e.epoch, e.failure.rank,
                     e.failure.sentence);
}
std::string describe_event(const EvidenceFound& e) {
  return fmt::format("EvidenceFound{{{}, {} bytes}}", e.epoch, e.evidence.detail.size());
}
std::string describe_event(const Leaving& e) {
  return fmt::format("Leaving{{signal {}{}}}", e.signal, e.reaped ? ", reaped" : "");
}
std::string describe_event(const Tick&) {
  return "Tick";
}

std::string describe_effect(const Connect& e) {
  return fmt::format("Connect{{{}}}", membership::to_text(AgentMessage{e.join}));
}
std::string describe_effect(const Disconnect&) {
  return "Disconnect";
}
std::string describe_effect(const Send& e) {
  return fmt::format("Send{{{}}}", membership::to_text(e.message));
}
std::string describe_effect(const RoundFormed& e) {
  return fmt::format("RoundFormed{{{}, node {} of {}}}", e.round.epoch, e.round.node_rank,
                     e.round.nodes);
}
std::string describe_effect(const StopWorkers& e) {
  return fmt::format("StopWorkers{{{}, {}, {}}}", e.epoch, stop_why_name(e.why), e.text);
}
std::string describe_effect(const LeaveAnnounced&) {
  return "LeaveAnnounced";
}
std::string describe_effect(const JobEnded& e) {
  return fmt::format("JobEnded{{exit {}, {}}}", e.end.exit_code, e.end.text);
}
std::string describe_effect(const GaveUp& e) {
  return fmt::format("GaveUp{{{}}}", e.error.message);
}
std::string describe_effect(const Say& e) {
  return fmt::format("Say{{{}}}", e.text);
}

}  // namespace

std::string to_text(const Member::Event& event) {
  return std::visit([](const auto& e) { return describe_event(e); }, event);
}

std::string to_text(const Member::Effect& effect) {
  return std::visit([](const auto& e) { return describe_effect(e); }, effect);
}

}  // namespace member

}  // namespace muster
