#include "agent/control/control_protocol.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <concepts>
#include <csignal>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/process/exit_status.h"
#include "rendezvous/base/fields.h"
#include "rendezvous/net/field_codec.h"

namespace muster::control {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
// Deep nesting exhausts stacks; the deepest valid message has a frame of a thread's stack.
constexpr int kDepthMax = 8;
constexpr std::size_t kWordBytesMax = 4096;

constexpr const char* kInRange = "a whole number in range";
constexpr const char* kObjects = "a list of objects";

// The names of Request's alternatives, in their order.
constexpr std::array<std::string_view, std::variant_size_v<Request>> kCommands{
    "status", "signal", "logs", "records", "stacks", "dump", "variables"};
// The field that identifies each of Reply's alternatives, in their order.
constexpr std::array kReplyKeys{"", "status", "logs", "records", "stacks", "path", "variables"};

// The fields of each message, which a Writer puts into an object and a Reader takes from it.
void message_fields(auto&, Like<StatusRequest, DumpRequest, VariablesRequest> auto&) {}

void message_fields(auto& a, Like<SignalRequest> auto& request) {
  a.signal("signal", request.signal);
  a("ranks", request.ranks);
}

void message_fields(auto& a, Like<LogsRequest> auto& request) {
  a("ranks", request.ranks);
  a.lines("lines", request.lines, kLogLinesMax);
  a("follow", request.follow);
}

void message_fields(auto& a, Like<RecordsRequest> auto& request) {
  a("ranks", request.ranks);
  a.lines("lines", request.lines, kRecordLinesMax);
}

void message_fields(auto& a, Like<StacksRequest> auto& request) {
  a("ranks", request.ranks);
  a("quiet", request.quiet);
  a("main_threads", request.main_threads);
}

void message_fields(auto& a, Like<NodeStatus> auto& node) {
  a("node_rank", node.node_rank);
  a("host", node.host);
  a("first_rank", node.first_rank);
  a("workers", node.workers);
  a("state", node.state);
}

void message_fields(auto& a, Like<JobStatus> auto& status) {
  a("job_id", status.job_id);
  a("pid", status.pid);
  a("program", status.program);
  a("phase", status.phase);
  a("epoch", status.epoch);
  a("world_size", status.world_size);
  a("nodes", status.nodes);
  a("restarts_used", status.restarts_used);
  a("max_restarts", status.max_restarts);
  a("membership_changes", status.membership_changes);
  a("max_membership_changes", status.max_membership_changes);
  a("uptime_s", status.uptime_s);
  a("log_dir", status.log_dir);
}

void message_fields(auto& a, Like<LogText> auto& log) {
  a("rank", log.rank);
  a.end_of("text", log.text);
  a("position", log.position);
}

void message_fields(auto& a, Like<GroupLine> auto& group) {
  a("name", group.name);
  a("id", group.id);
  a("ranks", group.ranks);
  a("size", group.size);
  a("own_rank", group.own_rank);
  a.word("state", group.state, kGroupStates);
  a("called", group.called);
  a("completed", group.completed);
  a("state_ago_s", group.state_ago_s);
  a("called_ago_s", group.called_ago_s);
}

void message_fields(auto& a, Like<CallLine> auto& call) {
  a("group", call.group);
  a("ordinal", call.ordinal);
  a("operation", call.operation);
  a("call", call.call);
  a("count", call.count);
  a("type", call.type);
  a("reduction", call.reduction);
  a("root", call.root);
  a("tag", call.tag);
  a("synchronous", call.synchronous);
  a.word("state", call.state, kCallStates);
  a("called_ago_s", call.called_ago_s);
  a("took_s", call.took_s);
  a("site", call.site);
}

void message_fields(auto& a, Like<SectionLine> auto& section) {
  a("name", section.name);
  a("entered_ago_s", section.entered_ago_s);
}

void message_fields(auto& a, Like<RankRecords> auto& records) {
  a("rank", records.rank);
  a("pid", records.pid);
  a("summary", records.summary);
  a("source", records.source);
  a("owner", records.owner);
  a("attached_ago_s", records.attached_ago_s);
  a("recorded", records.recorded);
  a("dropped", records.dropped);
  a("groups_left_out", records.groups_left_out);
  a("garbage", records.garbage);
  a("failure", records.failure);
  a("failed_group", records.failed_group);
  a("failed_ago_s", records.failed_ago_s);
  a("groups", records.groups);
  a("sections", records.sections);
  a("current", records.current);
  a("calls", records.calls);
}

void message_fields(auto& a, Like<StackFrame> auto& frame) {
  a("function", frame.function);
  a("file", frame.file);
  a("line", frame.line);
}

void message_fields(auto& a, Like<ThreadStack> auto& thread) {
  a("thread", thread.thread);
  a("name", thread.name);
  a("frames", thread.frames);
}

void message_fields(auto& a, Like<ProcessStack> auto& process) {
  a("pid", process.pid);
  a("name", process.name);
  a("ended", process.ended);
  a("doing", process.doing);
  a("is_idle", process.is_idle);
  a("is_sole_holder", process.is_sole_holder);
  a("waits_for_thread", process.waits_for_thread);
  a("lock_holder", process.lock_holder);
  a("lock_holder_name", process.lock_holder_name);
  a("lock_holder_rank", process.lock_holder_rank);
  a("frames", process.frames);
}

void message_fields(auto& a, Like<EndedThread> auto& thread) {
  a("name", thread.name);
  a("error", thread.error);
  a("site", thread.site);
  a("ended_ago_s", thread.ended_ago_s);
}

void message_fields(auto& a, Like<RankStacks> auto& stacks) {
  a("rank", stacks.rank);
  a("pid", stacks.pid);
  a("process", stacks.process);
  a("in_call", stacks.in_call);
  a("threads", stacks.threads);
  a("missing", stacks.missing);
  a("processes", stacks.processes);
  a("processes_left_out", stacks.processes_left_out);
  a("ended_thread", stacks.ended_thread);
}

void message_fields(auto& a, Like<Records> auto& records) {
  a("records", records.ranks);
  a("unanswered", records.unanswered);
}

void message_fields(auto& a, Like<Stacks> auto& stacks) {
  a("stacks", stacks.ranks);
  a("unanswered", stacks.unanswered);
}

void message_fields(auto& a, Like<Dump> auto& dump) {
  a("path", dump.path);
  a("unanswered", dump.unanswered);
}

void message_fields(auto& a, Like<Variable> auto& variable) {
  a("name", variable.name);
  a("value", variable.value);
  a("digest", variable.digest);
}

void message_fields(auto& a, Like<JobEntry> auto& entry) {
  a("id", entry.id);
  a("program", entry.program);
  a("started", entry.started);
}

void reply_fields(auto&, Like<Done> auto&) {}

void reply_fields(auto& a, Like<JobStatus> auto& status) {
  a("status", status);
}

void reply_fields(auto& a, Like<std::vector<LogText>> auto& logs) {
  a("logs", logs);
}

void reply_fields(auto& a, Like<Records, Stacks, Dump> auto& message) {
  message_fields(a, message);
}

void reply_fields(auto& a, Like<Variables> auto& variables) {
  a("variables", variables);
}

void reply_fields(auto& a, Like<Error> auto& error) {
  a("error", error.message);
  a.exit_code("code", error.code);
}

// A message that stands alone in a field.
template <typename Message>
concept Single = std::same_as<Message, JobStatus> || std::same_as<Message, CallLine> ||
                 std::same_as<Message, EndedThread>;

struct Writer {
  json object = json::object();

  void operator()(const char* key, const auto& value) { object[key] = value; }
  template <typename Value>
  void operator()(const char* key, const std::optional<Value>& value) {
    if (value) (*this)(key, *value);
  }
  void operator()(const char* key, const RankRanges& ranges) {
    for (const auto& [first, last] : ranges)
      object[key].push_back(first == last ? json(first) : json{first, last});
  }
  void operator()(const char* key, const std::vector<std::string>& lines) { object[key] = lines; }
  template <typename Message>
  void operator()(const char* key, const std::vector<Message>& list) {
    object[key] = json::array();
    for (const Message& message : list)
      object[key].push_back(object_of(message));
  }
  void operator()(const char* key, const Single auto& message) { object[key] = object_of(message); }
  // Cuts the text's beginning off if it is too long.
  void end_of(const char* key, const std::string& text) {
    object[key] = text.substr(text.size() - std::min(text.size(), kLogTextBytesMax));
  }
  void signal(const char* key, int number) { object[key] = signal_name(number); }
  void word(const char* key, auto value, const auto& words) {
    object[key] = words[static_cast<size_t>(value)];
  }
  void lines(const char* key, int count, int /*most*/) { object[key] = count; }
  void exit_code(const char* key, ExitCode code) { object[key] = static_cast<int>(code); }

  static json object_of(const auto& message) {
    Writer writer;
    message_fields(writer, message);
    return std::move(writer.object);
  }
};

std::optional<int64_t> integer_of(const json& value) {
  const bool huge = value.is_number_unsigned() && !std::in_range<int64_t>(value.get<uint64_t>());
  return value.is_number_integer() && !huge ? std::optional(value.get<int64_t>()) : std::nullopt;
}

// A rank, or [FIRST,LAST].
std::optional<std::pair<int, int>> range_of(const json& item) {
  const bool has_two = item.is_array() && item.size() == 2;
  const auto first = integer_of(has_two ? item[0] : item);
  const auto last = integer_of(has_two ? item[1] : item);
  if (!first || !last || *first < 0 || *first > *last || !std::in_range<int>(*last)) return {};
  return std::pair{static_cast<int>(*first), static_cast<int>(*last)};
}

// Any field may be absent; its value then stays. `problem`: about the first field that is wrong.
struct Reader {
  const json& object;
  std::string& problem;

  void operator()(const char* key, auto& value) {
    if (const auto found = object.find(key); found != object.end()) take(*found, key, value);
  }
  void end_of(const char* key, std::string& text) { (*this)(key, text); }
  void signal(const char* key, int& number) {
    std::string name;
    (*this)(key, name);
    const auto named = signal_by_name(name);
    if (!named) wrong(key, "the name of a signal");
    number = named.value_or(0);
  }
  template <typename Word>
  void word(const char* key, Word& value, const auto& words) {
    std::string text(words[static_cast<size_t>(value)]);
    (*this)(key, text);
    const auto known = std::ranges::find(words, text);
    if (known == words.end()) return wrong(key, "a word that this muster knows");
    value = static_cast<Word>(known - words.begin());
  }
  void lines(const char* key, int& count, int most) {
    (*this)(key, count);
    if (count < 0 || count > most) wrong(key, kInRange);
  }
  void exit_code(const char* key, ExitCode& code) {
    auto number = static_cast<int>(code);
    (*this)(key, number);
    if (number < 0 || number > 255) wrong(key, kInRange);
    code = static_cast<ExitCode>(number);
  }
  void wrong(std::string_view key, std::string_view expected) {
    if (problem.empty()) problem = fmt::format("{} is not {}", key, expected);
  }

 private:
  void take(const json& found, const char* key, std::string& text) {
    if (!found.is_string()) return wrong(key, "a string");
    text = found.get<std::string>();
  }
  void take(const json& found, const char* key, bool& flag) {
    if (!found.is_boolean()) return wrong(key, "true or false");
    flag = found.get<bool>();
  }
  void take(const json& found, const char*, double& number) {
    if (found.is_number()) number = found.get<double>();
  }
  template <std::integral Number>
  void take(const json& found, const char* key, Number& number) {
    const auto whole = integer_of(found);
    if (!whole || !std::in_range<Number>(*whole)) return wrong(key, kInRange);
    number = static_cast<Number>(*whole);
  }
  template <typename Value>
  void take(const json& found, const char* key, std::optional<Value>& value) {
    take(found, key, value.emplace());
  }
  void take(const json& found, const char* key, RankRanges& ranges) {
    const std::size_t count = found.is_array() ? found.size() : 0;
    for (std::size_t i = 0; i < count && count <= kRangesMax; ++i) {
      if (const auto range = range_of(found[i])) ranges.push_back(*range);
    }
    if (ranges.empty() || ranges.size() != count) wrong(key, "a list of ranks and [FIRST,LAST]");
  }
  void take(const json& found, const char* key, std::vector<std::string>& lines) {
    if (!found.is_array()) return wrong(key, "a list of strings");
    for (const json& line : found)
      take(line, key, lines.emplace_back());
  }
  template <typename Message>
  void take(const json& found, const char* key, std::vector<Message>& list) {
    if (!found.is_array()) return wrong(key, kObjects);
    for (const json& item : found) {
      if (!item.is_object()) return wrong(key, kObjects);
      Reader inner{item, problem};
      message_fields(inner, list.emplace_back());
    }
  }
  void take(const json& found, const char* key, Single auto& message) {
    if (!found.is_object()) return wrong(key, "an object");
    Reader inner{found, problem};
    message_fields(inner, message);
  }
};

// Parses without throwing, and no deeper than kDepthMax; null: it is no object.
json parsed_object(std::string_view line) {
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= kDepthMax; };
  json value = json::parse(line.begin(), line.end(), shallow, false);
  return value.is_object() ? value : json();
}

std::string compact(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string line_of(const json& object) {
  return compact(object) + "\n";
}

Request request_of(const json& object, std::string& problem) {
  if (object.is_null()) problem = "the line is not a JSON object";
  Reader read{object, problem};
  std::string command;
  read("command", command);
  const auto known = std::ranges::find(kCommands, command);
  Request request;
  if (known == kCommands.end()) {
    read.wrong("command",
               "a command; the commands are status, signal, logs, records, stacks and dump");
    return request;
  }
  emplace_nth(request, static_cast<size_t>(known - kCommands.begin()));
  std::visit([&](auto& message) { message_fields(read, message); }, request);
  return request;
}

Reply reply_of(const json& object, std::string& problem) {
  Reader read{object, problem};
  Reply reply;
  const auto ok = object.find("ok");
  if (ok == object.end() || !ok->is_boolean()) {
    read.wrong("the line", "a reply of muster");
    return reply;
  }
  const auto has = [&](const char* key) { return object.contains(key); };
  const auto kind = std::ranges::find_if(kReplyKeys, has);
  if (!ok->get<bool>()) {
    reply.emplace<Error>();
  } else if (kind != kReplyKeys.end()) {
    emplace_nth(reply, static_cast<size_t>(kind - kReplyKeys.begin()));
  }
  std::visit([&](auto& message) { reply_fields(read, message); }, reply);
  return reply;
}

}  // namespace

bool selects(const RankRanges& ranges, int rank) {
  return ranges.empty() || std::ranges::any_of(ranges, [&](const auto& range) {
           return range.first <= rank && rank <= range.second;
         });
}

std::string encode(const Request& request) {
  Writer writer;
  writer("command", kCommands[request.index()]);
  std::visit([&](const auto& message) { message_fields(writer, message); }, request);
  return line_of(writer.object);
}

std::string encode(const Reply& reply) {
  Writer writer;
  writer("version", kVersion);
  writer("ok", !std::holds_alternative<Error>(reply));
  std::visit([&](const auto& message) { reply_fields(writer, message); }, reply);
  std::string line = line_of(writer.object);
  if (line.size() <= kReplyBytesMax) return line;
  return encode(Reply(Error{ExitCode::environment,
                            fmt::format("the answer has {} bytes, more than the limit of {}; ask "
                                        "for fewer ranks",
                                        line.size(), kReplyBytesMax)}));
}

std::string encode(const RankRecords& records) {
  return compact(Writer::object_of(records));
}

std::string encode(const RankStacks& stacks) {
  return compact(Writer::object_of(stacks));
}

std::string encode(const JobEntry& entry) {
  Writer writer;
  writer("pid", entry.pid);
  message_fields(writer, entry);
  return line_of(writer.object);
}

void read_job_entry(std::string_view line, JobEntry& entry) {
  std::string ignored;
  const json object = parsed_object(line);
  Reader reader{object, ignored};
  message_fields(reader, entry);
}

Result<Request> decode_request(std::string_view line) {
  if (line.size() > kRequestBytesMax) {
    return fail(ExitCode::usage,
                fmt::format("cannot read the request: it is longer than {} bytes; name fewer ranks",
                            kRequestBytesMax));
  }
  std::string problem;
  Request request = request_of(parsed_object(line), problem);
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
    reply = reply_of(parsed_object(line), problem);
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
