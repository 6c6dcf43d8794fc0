#include "tests/transcripts/agent_protocol_transcript.h"

#include <fmt/format.h>

#include "tests/transcripts/seconds.h"

namespace muster::membership {
namespace {

// Foreign texts go into the transcript as one line each, whatever they contain.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  return '"' + escaped(text) + '"';
}

std::string nodes_text(const Join& m) {
  if (m.nodes_min == m.nodes_max) return fmt::format("{}", m.nodes_max);
  return fmt::format("{}:{}", m.nodes_min, m.nodes_max);
}

std::string_view phase_text(Phase phase) {
  switch (phase) {
    case Phase::ready:
      return "ready";
    case Phase::running:
      return "running";
    case Phase::stopping:
      return "stopping";
    case Phase::done:
      return "done";
    case Phase::leaving:
      return "leaving";
    case Phase::testified:
      return "testified";
  }
  return "?";
}

std::string_view refusal_text(RefusalKind kind) {
  constexpr std::string_view kNames[] = {"version",    "token",  "contradiction",
                                         "rank_taken", "closed", "full"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view end_text(EndWhy why) {
  constexpr std::string_view kNames[] = {"success", "failed", "stopped", "lost", "timeout"};
  return kNames[static_cast<size_t>(why)];
}

std::string failure_text(const NodeFailure& m) {
  return fmt::format("failure{{rank {} local {}, exit {}{}, {}}}", m.rank, m.local_rank,
                     m.exit_code, m.final ? ", final" : "", in_quotes(m.sentence));
}

std::string verdict_text(const Verdict& m) {
  return fmt::format("verdict{{rank {} local {} on {} (node rank {}), exit {}, {}, {} bytes}}",
                     m.rank, m.local_rank, in_quotes(m.host_name), m.node_rank, m.exit_code,
                     in_quotes(m.sentence), m.detail.size());
}

std::string message_text(const Hello& m) {
  return fmt::format("Hello{{version {}, job {}{}}}", m.version, in_quotes(m.job_id),
                     m.only_this_job ? " only" : "");
}

std::string message_text(const Join& m) {
  std::string out = fmt::format("Join{{agent {:x}-{:x}, host {}", m.agent.high, m.agent.low,
                                in_quotes(m.host_name));
  if (m.node_rank) out += fmt::format(", node rank {}", *m.node_rank);
  out += fmt::format(", {} slots, role {}, dialled {}, advertised {}{}", m.slots, in_quotes(m.role),
                     in_quotes(m.dialled), in_quotes(m.advertised), m.is_host ? ", host" : "");
  out += fmt::format(", nodes {} + {}, {} restarts", nodes_text(m), m.spares, m.max_restarts);
  if (m.max_membership_changes) out += fmt::format(", {} changes", *m.max_membership_changes);
  out += fmt::format(", last call {}, join time-out {}, lease {}", seconds_text(m.last_call),
                     seconds_text(m.join_timeout), seconds_text(m.lease));
  return out + fmt::format(
                   "; was rank {} of {} in epoch {} of {:x}, {} restarts and {} changes so far}}",
                   m.last_rank, m.last_nodes, m.last_epoch, m.last_instance, m.restarts, m.changes);
}

std::string message_text(const Report& m) {
  std::string out = fmt::format("Report{{{}, order {}, epoch {}, {}{}", m.sequence, m.order,
                                m.epoch, phase_text(m.phase), m.reaped ? ", reaped" : "");
  if (m.signal != 0) out += fmt::format(", signal {}", m.signal);
  if (m.failure) out += ", " + failure_text(*m.failure);
  if (m.evidence) out += fmt::format(", evidence of {} bytes", m.evidence->detail.size());
  return out + "}";
}

std::string message_text(const Goodbye&) {
  return "Goodbye{}";
}

std::string message_text(const Query& m) {
  return fmt::format("Query{{{}}}", m.id);
}

std::string message_text(const Datagram& m) {
  return fmt::format("Datagram{{epoch {}, to {}, {} bytes}}", m.epoch, m.to, m.payload.size());
}

std::string message_text(const Belongs& m) {
  return fmt::format("Belongs{{{}{}}}", m.id, m.to_job ? ", to the job" : "");
}

std::string message_text(const Challenge& m) {
  return m.token ? "Challenge{token}" : "Challenge{}";
}

std::string message_text(const Welcome& m) {
  return fmt::format("Welcome{{instance {:x}, lease {}, heartbeat {}}}", m.host_instance,
                     seconds_text(m.lease), seconds_text(m.heartbeat));
}

std::string message_text(const Refused& m) {
  return fmt::format("Refused{{{}, {}}}", refusal_text(m.kind), in_quotes(m.text));
}

std::string order_text(const Wait& m) {
  return fmt::format("Wait{{{}{}}}", m.spare ? "spare, " : "", in_quotes(m.text));
}

std::string order_text(const Round& m) {
  return fmt::format(
      "Round{{epoch {}, node {} of {}, ranks {}+ of {}, role ranks {}+ of {}, master {}:{}, "
      "{} restarts, {} changes{}}}",
      m.epoch, m.node_rank, m.nodes, m.base_rank, m.world_size, m.base_role_rank, m.role_world_size,
      escaped(m.master_addr), m.master_port, m.restarts, m.changes,
      m.before ? ", after " + verdict_text(*m.before) : "");
}

std::string order_text(const Stop& m) {
  return fmt::format("Stop{{epoch {}, {}, {}}}", m.epoch, to_text(m.why), in_quotes(m.text));
}

std::string order_text(const End& m) {
  std::string out = fmt::format("End{{{}, exit {}", end_text(m.why), m.exit_code);
  if (m.signal != 0) out += fmt::format(", signal {}", m.signal);
  if (m.node_rank >= 0)
    out += fmt::format(", node rank {} on {}", m.node_rank, in_quotes(m.host_name));
  out += fmt::format(", {}", in_quotes(m.text));
  if (m.verdict) out += ", " + verdict_text(*m.verdict);
  return out + fmt::format(", {} restarts, {} changes}}", m.restarts, m.changes);
}

std::string message_text(const Order& m) {
  return fmt::format("Order{{{}, {}}}", m.sequence,
                     std::visit([](const auto& what) { return order_text(what); }, m.what));
}

std::string message_text(const Alive& m) {
  return fmt::format("Alive{{report {}}}", m.report);
}

std::string message_text(const Nodes& m) {
  std::string out = fmt::format("Nodes{{{}", m.query);
  for (const NodeLine& line : m.lines)
    out += fmt::format(", node {} {} ranks {}+{} {}", line.node_rank, in_quotes(line.host),
                       line.first_rank, line.workers, in_quotes(line.state));
  if (m.left_out > 0) out += fmt::format(", {} left out", m.left_out);
  return out + (m.last ? "}" : ", more}");
}

std::string message_text(const Delivered& m) {
  return fmt::format("Delivered{{epoch {}, from {}, {} bytes}}", m.epoch, m.from, m.payload.size());
}

std::string message_text(const WhoseIs& m) {
  return fmt::format("WhoseIs{{{}, {} at {}}}", m.id, in_quotes(m.client), in_quotes(m.store));
}

}  // namespace

std::string_view to_text(StopWhy why) {
  constexpr std::string_view kNames[] = {"failure", "lost", "left",
                                         "joined",  "host", "left, all signalled"};
  return kNames[static_cast<size_t>(why)];
}

std::string to_text(const AgentMessage& message) {
  return std::visit([](const auto& m) { return message_text(m); }, message);
}

std::string to_text(const HostMessage& message) {
  return std::visit([](const auto& m) { return message_text(m); }, message);
}

}  // namespace muster::membership
