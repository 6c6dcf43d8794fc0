#include "agent/control/control_protocol.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>

#include <fmt/format.h>

#include "agent/report/wire_json.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/net/field_codec.h"

namespace muster::control {
namespace {

using wire::Json;

constexpr int kVersion = 1;
constexpr std::size_t kWordBytesMax = 4096;

// A rank, or [FIRST,LAST].
std::optional<std::pair<int, int>> range_of(const Json& item) {
  const bool has_two = item.is_array() && item.size() == 2;
  const auto first = wire::integer_of(has_two ? item[0] : item);
  const auto last = wire::integer_of(has_two ? item[1] : item);
  if (!first || !last || *first < 0 || *first > *last || !std::in_range<int>(*last)) return {};
  return std::pair{static_cast<int>(*first), static_cast<int>(*last)};
}

void ranks_field(wire::JsonWriter& a, const RankRanges& ranges) {
  Json list;
  for (const auto& [first, last] : ranges)
    list.push_back(first == last ? Json(first) : Json{first, last});
  if (!ranges.empty()) a.put("ranks", std::move(list));
}

void ranks_field(wire::JsonReader& a, RankRanges& ranges) {
  const Json* const found = a.find("ranks");
  const std::size_t count = found != nullptr && found->is_array() ? found->size() : 0;
  for (std::size_t i = 0; i < count && count <= kRangesMax; ++i) {
    if (const auto range = range_of((*found)[i])) ranges.push_back(*range);
  }
  if (found != nullptr && (ranges.empty() || ranges.size() != count))
    a.miss("ranks", "a list of ranks and [FIRST,LAST]");
}

}  // namespace
}  // namespace muster::control

namespace muster::wire {

void fields(auto&,
            Like<control::StatusRequest, control::DumpRequest, control::VariablesRequest> auto&) {}

void fields(auto& a, Like<control::SignalRequest> auto& request) {
  std::string name = signal_name(request.signal);
  a("signal", name);
  control::ranks_field(a, request.ranks);
  if constexpr (kReads<decltype(a)>) {
    const auto named = control::signal_by_name(name);
    if (!named) return a.miss("signal", "the name of a signal");
    request.signal = *named;
  }
}

void fields(auto& a, Like<control::LogsRequest> auto& request) {
  control::ranks_field(a, request.ranks);
  a.number("lines", request.lines, 0, control::kLogLinesMax);
  a("follow", request.follow);
}

void fields(auto& a, Like<control::RecordsRequest> auto& request) {
  control::ranks_field(a, request.ranks);
  a.number("lines", request.lines, 0, control::kRecordLinesMax);
}

void fields(auto& a, Like<control::StacksRequest> auto& request) {
  control::ranks_field(a, request.ranks);
  a("quiet", request.quiet);
  a("main_threads", request.main_threads);
}

void fields(auto& a, Like<control::NodeStatus> auto& m) {
  MUSTER_FIELDS(node_rank, host, first_rank, workers, state);
}

void fields(auto& a, Like<control::JobStatus> auto& m) {
  MUSTER_FIELDS(job_id, pid, program, phase, epoch, world_size, nodes, restarts_used, max_restarts,
                membership_changes, uptime_s, log_dir);
  a.if_any("max_membership_changes", m.max_membership_changes);
}

void fields(auto& a, Like<control::LogText> auto& log) {
  a("rank", log.rank);
  std::string end =
      log.text.substr(log.text.size() - std::min(log.text.size(), control::kLogTextBytesMax));
  a("text", end);
  if constexpr (kReads<decltype(a)>) log.text = std::move(end);
  a("position", log.position);
}

void fields(auto& a, Like<GroupLine> auto& m) {
  MUSTER_FIELDS(name, id, ranks, size, own_rank, called, completed, state_ago_s, called_ago_s);
  a.word("state", m.state, kGroupStates);
}

void fields(auto& a, Like<CallLine> auto& m) {
  MUSTER_FIELDS(group, ordinal, operation, call, count, type, reduction, root, tag, synchronous,
                called_ago_s, site);
  a.word("state", m.state, kCallStates);
  a.if_any("took_s", m.took_s);
}

void fields(auto& a, Like<SectionLine> auto& section) {
  a("name", section.name);
  a("entered_ago_s", section.entered_ago_s);
}

void fields(auto& a, Like<RankRecords> auto& m) {
  MUSTER_FIELDS(rank, pid, summary, source, owner, attached_ago_s, recorded, dropped,
                groups_left_out, garbage, failure, failed_group, failed_ago_s, groups, sections,
                calls);
  a.if_any("current", m.current);
}

void fields(auto& a, Like<StackFrame> auto& m) {
  MUSTER_FIELDS(function, file, line);
}

void fields(auto& a, Like<ThreadStack> auto& m) {
  MUSTER_FIELDS(thread, name, frames);
}

void fields(auto& a, Like<ProcessStack> auto& m) {
  MUSTER_FIELDS(pid, name, ended, doing, is_idle, is_sole_holder, waits_for_thread, lock_holder,
                lock_holder_name, lock_holder_rank, frames);
}

void fields(auto& a, Like<EndedThread> auto& m) {
  MUSTER_FIELDS(name, error, site, ended_ago_s);
}

void fields(auto& a, Like<RankStacks> auto& m) {
  MUSTER_FIELDS(rank, pid, process, in_call, threads, missing, processes, processes_left_out);
  a.if_any("ended_thread", m.ended_thread);
}

void fields(auto& a, Like<control::Records> auto& records) {
  a("records", records.ranks);
  a("unanswered", records.unanswered);
}

void fields(auto& a, Like<control::Stacks> auto& stacks) {
  a("stacks", stacks.ranks);
  a("unanswered", stacks.unanswered);
}

void fields(auto& a, Like<control::Dump> auto& dump) {
  a("path", dump.path);
  a("unanswered", dump.unanswered);
}

void fields(auto& a, Like<control::Variable> auto& variable) {
  a("name", variable.name);
  a.if_any("value", variable.value);
  a("digest", variable.digest);
}

void fields(auto& a, Like<JobEntry> auto& m) {
  MUSTER_FIELDS(pid, id, program, started);
}

}  // namespace muster::wire

namespace muster::control {
namespace {

// The names of Request's alternatives, in their order.
constexpr std::array<std::string_view, std::variant_size_v<Request>> kCommands{
    "status", "signal", "logs", "records", "stacks", "dump", "variables"};
// The field that identifies each of Reply's alternatives, in their order.
constexpr std::array kReplyKeys{"", "status", "logs", "records", "stacks", "path", "variables"};

void reply_fields(auto&, size_t, Like<Done> auto&) {}

void reply_fields(auto& a, size_t kind,
                  Like<JobStatus, std::vector<LogText>, Variables> auto& message) {
  a(kReplyKeys[kind], message);
}

void reply_fields(auto& a, size_t, Like<Records, Stacks, Dump> auto& message) {
  wire::fields(a, message);
}

void reply_fields(auto& a, size_t, Like<Error> auto& error) {
  a("error", error.message);
  a.number("code", error.code, 0, 255);
}

std::string line_of(wire::JsonWriter& writer) {
  return wire::dump(writer.take()) + "\n";
}

Request request_of(const Json& object, std::string& problem) {
  if (!object.is_object()) problem = "the line is not a JSON object";
  wire::JsonReader read(object, problem, wire::Absent::keeps_its_value);
  std::string command;
  read("command", command);
  const auto known = std::ranges::find(kCommands, command);
  Request request;
  if (known == kCommands.end()) {
    read.miss("command",
              "a command; the commands are status, signal, logs, records, stacks and dump");
    return request;
  }
  emplace_nth(request, static_cast<size_t>(known - kCommands.begin()));
  std::visit([&](auto& message) { wire::fields(read, message); }, request);
  return request;
}

Reply reply_of(const Json& object, std::string& problem) {
  Reply reply;
  const auto ok = object.find("ok");
  if (ok == object.end() || !ok->is_boolean()) {
    problem = "the line is not a reply of muster";
    return reply;
  }
  wire::JsonReader read(object, problem, wire::Absent::keeps_its_value);
  const auto has = [&](const char* key) { return object.contains(key); };
  const auto kind = std::ranges::find_if(kReplyKeys, has);
  if (!ok->get<bool>()) {
    reply.emplace<Error>();
  } else if (kind != kReplyKeys.end()) {
    emplace_nth(reply, static_cast<size_t>(kind - kReplyKeys.begin()));
  }
  std::visit([&](auto& message) { reply_fields(read, reply.index(), message); }, reply);
  return reply;
}

}  // namespace

bool selects(const RankRanges& ranges, int rank) {
  return ranges.empty() || std::ranges::any_of(ranges, [&](const auto& range) {
           return range.first <= rank && rank <= range.second;
         });
}

std::string encode(const Request& request) {
  wire::JsonWriter writer;
  writer("command", kCommands[request.index()]);
  std::visit([&](const auto& message) { wire::fields(writer, message); }, request);
  return line_of(writer);
}

std::string encode(const Reply& reply) {
  wire::JsonWriter writer;
  writer("version", kVersion);
  writer("ok", !std::holds_alternative<Error>(reply));
  std::visit([&](const auto& message) { reply_fields(writer, reply.index(), message); }, reply);
  std::string line = line_of(writer);
  if (line.size() <= kReplyBytesMax) return line;
  return encode(Reply(Error{ExitCode::environment,
                            fmt::format("the answer has {} bytes, more than the limit of {}; ask "
                                        "for fewer ranks",
                                        line.size(), kReplyBytesMax)}));
}

std::string encode(const RankRecords& records) {
  return wire::dump(wire::json_of(records));
}

std::string encode(const RankStacks& stacks) {
  return wire::dump(wire::json_of(stacks));
}

std::string encode(const JobEntry& entry) {
  return wire::dump(wire::json_of(entry)) + "\n";
}

std::string encode(std::span<const JobEntry> entries) {
  wire::JsonWriter writer;
  writer("version", kVersion);
  writer("ok", true);
  writer("jobs", std::vector(entries.begin(), entries.end()));
  return line_of(writer);
}

void read_job_entry(std::string_view line, JobEntry& entry) {
  std::string ignored;
  const Json object = wire::parse(line);
  wire::JsonReader reader(object, ignored, wire::Absent::keeps_its_value);
  wire::fields(reader, entry);
}

Result<Request> decode_request(std::string_view line) {
  if (line.size() > kRequestBytesMax) {
    return fail(ExitCode::usage,
                fmt::format("cannot read the request: it is longer than {} bytes; name fewer ranks",
                            kRequestBytesMax));
  }
  std::string problem;
  Request request = request_of(wire::parse(line), problem);
  if (problem.empty()) return request;
  return fail(
      ExitCode::usage,
      fmt::format("cannot read the request: {}; use musterctl of the same version", problem));
}

Result<Reply> decode_reply(std::string_view line) {
  std::string problem = "the line is not a reply: it is too long";
  Reply reply;
  if (line.size() <= kReplyBytesMax) {
    problem.clear();
    reply = reply_of(wire::parse(line), problem);
  }
  if (problem.empty()) return reply;
  return fail(
      ExitCode::internal,
      fmt::format("cannot read the job's answer: {}; use musterctl of the same version", problem));
}

std::optional<int> signal_by_name(std::string_view name) {
  std::string wanted;
  for (const char c : name.substr(0, kWordBytesMax))
    wanted += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (!wanted.starts_with("SIG")) wanted.insert(0, "SIG");
  for (int number = 1; number <= SIGRTMAX; ++number) {
    const std::string known = signal_name(number);
    const bool named = known.starts_with("SIG");  // glibc reserves those without a name.
    if (named && (known == wanted || fmt::format("SIG{}", number) == wanted)) return number;
  }
  return std::nullopt;
}

}  // namespace muster::control
