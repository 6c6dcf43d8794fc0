#include "agent/control/control_protocol.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/process/exit_status.h"

namespace muster::control {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
// Deep nesting exhausts stacks; valid messages are no deeper than a list of ranges in an object.
constexpr int kDepthMax = 8;
constexpr std::size_t kWordBytesMax = 4096;

template <typename T>
using Field = tl::expected<T, std::string>;

tl::unexpected<std::string> wrong(std::string_view key, std::string_view expected) {
  return tl::unexpected(fmt::format("{} is not {}", key, expected));
}

// A parse that never throws and descends no deeper than kDepthMax.
json parsed_object(std::string_view line) {
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= kDepthMax; };
  json value = json::parse(line.begin(), line.end(), shallow, false);
  return value.is_object() ? value : json();
}

Field<int64_t> whole_number_in(const json& object, const char* key, int64_t fallback, int64_t min,
                               int64_t max) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  const bool too_big = found->is_number_unsigned() &&
                       found->get<uint64_t>() > static_cast<uint64_t>(max < 0 ? 0 : max);
  if (!found->is_number_integer() || too_big) return wrong(key, "a whole number in range");
  const auto value = found->get<int64_t>();
  if (value < min || value > max) return wrong(key, "a whole number in range");
  return value;
}

Field<std::string> text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::string();
  if (!found->is_string()) return wrong(key, "a string");
  return found->get<std::string>();
}

Field<std::pair<int, int>> range_of(const json& item) {
  const auto rank = [](const json& value) -> std::optional<int> {
    if (!value.is_number_integer()) return std::nullopt;
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > uint64_t{std::numeric_limits<int>::max()})
      return std::nullopt;
    const auto number = value.get<int64_t>();
    if (number < 0 || number > std::numeric_limits<int>::max()) return std::nullopt;
    return static_cast<int>(number);
  };
  if (const auto single = rank(item)) return std::pair{*single, *single};
  if (!item.is_array() || item.size() != 2)
    return wrong("ranks", "a list of ranks and [FIRST,LAST]");
  const auto first = rank(item[0]);
  const auto last = rank(item[1]);
  if (!first || !last || *first > *last) return wrong("ranks", "a list of ranks and [FIRST,LAST]");
  return std::pair{*first, *last};
}

Field<RankRanges> ranges_in(const json& object) {
  const auto found = object.find("ranks");
  if (found == object.end()) return RankRanges();
  if (!found->is_array() || found->empty() || found->size() > kRangesMax) {
    return wrong("ranks", "a list of ranks and [FIRST,LAST]");
  }
  RankRanges ranges;
  for (const json& item : *found) {
    const auto range = range_of(item);
    if (!range) return tl::unexpected(range.error());
    ranges.push_back(*range);
  }
  return ranges;
}

void put_ranges(json& object, const RankRanges& ranges) {
  for (const auto& [first, last] : ranges) {
    object["ranks"].push_back(first == last ? json(first) : json{first, last});
  }
}

std::string line_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Field<Request> signal_request(const json& object) {
  const auto name = text_in(object, "signal");
  const auto ranks = ranges_in(object);
  if (!name) return tl::unexpected(name.error());
  if (!ranks) return tl::unexpected(ranks.error());
  const auto number = signal_by_name(*name);
  if (!number) return wrong("signal", "the name of a signal");
  return SignalRequest{*number, *ranks};
}

Field<Request> logs_request(const json& object) {
  const auto ranks = ranges_in(object);
  const auto lines = whole_number_in(object, "lines", LogsRequest{}.lines, 0, kLogLinesMax);
  if (!ranks) return tl::unexpected(ranks.error());
  if (!lines) return tl::unexpected(lines.error());
  LogsRequest request{*ranks, static_cast<int>(*lines), false};
  if (const auto follow = object.find("follow"); follow != object.end()) {
    if (!follow->is_boolean()) return wrong("follow", "true or false");
    request.follow = follow->get<bool>();
  }
  return request;
}

Field<Request> request_of(const json& object) {
  if (object.is_null()) return tl::unexpected(std::string("the line is not a JSON object"));
  const auto command = text_in(object, "command");
  if (!command) return tl::unexpected(command.error());
  if (*command == "status") return StatusRequest{};
  if (*command == "signal") return signal_request(object);
  if (*command == "logs") return logs_request(object);
  return wrong("command", "a command; the commands are status, signal and logs");
}

json json_of(const NodeStatus& node) {
  return {{"node_rank", node.node_rank},
          {"host", node.host},
          {"first_rank", node.first_rank},
          {"workers", node.workers},
          {"state", node.state}};
}

json json_of(const JobStatus& status) {
  json object{{"job_id", status.job_id},
              {"pid", status.pid},
              {"program", status.program},
              {"phase", status.phase},
              {"epoch", status.epoch},
              {"world_size", status.world_size},
              {"nodes", json::array()},
              {"restarts_used", status.restarts_used},
              {"max_restarts", status.max_restarts},
              {"membership_changes", status.membership_changes},
              {"uptime_s", status.uptime_s},
              {"log_dir", status.log_dir}};
  if (status.max_membership_changes) {
    object["max_membership_changes"] = *status.max_membership_changes;
  }
  for (const NodeStatus& node : status.nodes)
    object["nodes"].push_back(json_of(node));
  return object;
}

struct ReplyJson {
  void operator()(const Done&) const {}
  void operator()(const JobStatus& status) const { object["status"] = json_of(status); }
  void operator()(const std::vector<LogText>& logs) const {
    object["logs"] = json::array();
    for (const LogText& log : logs) {
      const std::size_t cut = log.text.size() - std::min(log.text.size(), kLogTextBytesMax);
      object["logs"].push_back(
          {{"rank", log.rank}, {"text", log.text.substr(cut)}, {"position", log.position}});
    }
  }
  void operator()(const Error& error) const {
    object["ok"] = false;
    object["error"] = error.message;
    object["code"] = static_cast<int>(error.code);
  }

  json& object;
};

// Reads one field after another and keeps the first error.
struct ReplyReader {
  const json& object;
  std::string problem;

  template <typename Number>
  void number(const char* key, Number& target) {
    const auto value = whole_number_in(object, key, target, std::numeric_limits<Number>::min(),
                                       std::numeric_limits<Number>::max());
    if (!value) return note(value.error());
    target = static_cast<Number>(*value);
  }
  void text(const char* key, std::string& target) {
    auto value = text_in(object, key);
    if (!value) return note(value.error());
    target = *std::move(value);
  }
  void note(const std::string& what) {
    if (problem.empty()) problem = what;
  }
};

Field<NodeStatus> node_of(const json& object) {
  if (!object.is_object()) return wrong("nodes", "a list of objects");
  NodeStatus node;
  ReplyReader read{object, {}};
  read.number("node_rank", node.node_rank);
  read.text("host", node.host);
  read.number("first_rank", node.first_rank);
  read.number("workers", node.workers);
  read.text("state", node.state);
  if (!read.problem.empty()) return tl::unexpected(read.problem);
  return node;
}

Field<std::vector<NodeStatus>> nodes_in(const json& object) {
  std::vector<NodeStatus> nodes;
  const auto found = object.find("nodes");
  if (found == object.end()) return nodes;
  if (!found->is_array()) return wrong("nodes", "a list of objects");
  for (const json& item : *found) {
    auto node = node_of(item);
    if (!node) return tl::unexpected(node.error());
    nodes.push_back(*std::move(node));
  }
  return nodes;
}

Field<Reply> read_status(const json& object) {
  if (!object.is_object()) return wrong("status", "an object");
  JobStatus status;
  ReplyReader read{object, {}};
  read.text("job_id", status.job_id);
  read.number("pid", status.pid);
  read.text("program", status.program);
  read.text("phase", status.phase);
  read.number("epoch", status.epoch);
  read.number("world_size", status.world_size);
  read.number("restarts_used", status.restarts_used);
  read.number("max_restarts", status.max_restarts);
  read.number("membership_changes", status.membership_changes);
  read.text("log_dir", status.log_dir);
  if (object.contains("max_membership_changes")) {
    read.number("max_membership_changes", status.max_membership_changes.emplace());
  }
  const auto uptime = object.find("uptime_s");
  if (uptime != object.end() && uptime->is_number()) status.uptime_s = uptime->get<double>();
  auto nodes = nodes_in(object);
  if (!nodes) return tl::unexpected(nodes.error());
  if (!read.problem.empty()) return tl::unexpected(read.problem);
  status.nodes = *std::move(nodes);
  return status;
}

Field<Reply> logs_of(const json& list) {
  if (!list.is_array()) return wrong("logs", "a list of objects");
  std::vector<LogText> logs;
  for (const json& item : list) {
    if (!item.is_object()) return wrong("logs", "a list of objects");
    LogText log;
    ReplyReader read{item, {}};
    read.number("rank", log.rank);
    read.text("text", log.text);
    int64_t position = 0;
    read.number("position", position);
    if (position < 0) read.note("position is not a whole number in range");
    log.position = static_cast<uint64_t>(position);
    if (!read.problem.empty()) return tl::unexpected(read.problem);
    logs.push_back(std::move(log));
  }
  return logs;
}

Field<Reply> error_of(const json& object) {
  const auto message = text_in(object, "error");
  const auto code = whole_number_in(object, "code", static_cast<int>(ExitCode::internal), 0, 255);
  if (!message) return tl::unexpected(message.error());
  if (!code) return tl::unexpected(code.error());
  return Error{static_cast<ExitCode>(*code), *message};
}

Field<Reply> reply_of(const json& object) {
  const auto ok = object.is_null() ? object.end() : object.find("ok");
  if (ok == object.end() || !ok->is_boolean()) return wrong("the line", "a reply of muster");
  if (!ok->get<bool>()) return error_of(object);
  if (const auto status = object.find("status"); status != object.end())
    return read_status(*status);
  if (const auto logs = object.find("logs"); logs != object.end()) return logs_of(*logs);
  return Done{};
}

}  // namespace

bool selects(const RankRanges& ranges, int rank) {
  return ranges.empty() || std::ranges::any_of(ranges, [&](const auto& range) {
           return range.first <= rank && rank <= range.second;
         });
}

std::string encode(const Request& request) {
  json object;
  if (const auto* signal = std::get_if<SignalRequest>(&request)) {
    object = {{"command", "signal"}, {"signal", signal_name(signal->signal)}};
    put_ranges(object, signal->ranks);
  } else if (const auto* logs = std::get_if<LogsRequest>(&request)) {
    object = {{"command", "logs"}, {"lines", logs->lines}, {"follow", logs->follow}};
    put_ranges(object, logs->ranks);
  } else {
    object = {{"command", "status"}};
  }
  return line_of(object);
}

std::string encode(const Reply& reply) {
  json object{{"version", kVersion}, {"ok", true}};
  std::visit(ReplyJson{object}, reply);
  std::string line = line_of(object);
  if (line.size() <= kReplyBytesMax) return line;
  return encode(Reply(Error{ExitCode::environment,
                            fmt::format("the answer has {} bytes, more than the limit of {}; ask "
                                        "for fewer ranks",
                                        line.size(), kReplyBytesMax)}));
}

Result<Request> decode_request(std::string_view line) {
  if (line.size() > kRequestBytesMax) {
    return fail(ExitCode::usage,
                fmt::format("cannot read the request: it is longer than {} bytes; name fewer ranks",
                            kRequestBytesMax));
  }
  auto request = request_of(parsed_object(line));
  if (request) return *std::move(request);
  return fail(ExitCode::usage,
              fmt::format("cannot read the request: {}; use musterctl of the same version",
                          request.error().substr(0, kWordBytesMax)));
}

Result<Reply> decode_reply(std::string_view line) {
  auto reply = line.size() > kReplyBytesMax
                   ? Field<Reply>(wrong("the line", "a reply: it is too long"))
                   : reply_of(parsed_object(line));
  if (reply) return *std::move(reply);
  return fail(ExitCode::internal,
              fmt::format("cannot read the job's answer: {}; use musterctl of the same version",
                          reply.error().substr(0, kWordBytesMax)));
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
