#include "tests/transcripts/member_transcript.h"

#include <fmt/format.h>

#include "tests/transcripts/agent_protocol_transcript.h"

namespace muster {

using membership::AgentMessage;

namespace member {

namespace {

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
std::string describe_event(const Testified& e) {
  return fmt::format("Testified{{{}}}", e.epoch);
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
  return fmt::format("StopWorkers{{{}, {}, {}}}", e.epoch, membership::to_text(e.why), e.text);
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
