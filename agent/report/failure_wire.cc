#include "agent/report/failure_wire.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/cause.h"
#include "agent/report/error_file.h"
#include "agent/report/text.h"

namespace muster {
namespace {

using WireJson = nlohmann::ordered_json;

constexpr int kDetailVersion = 1;
constexpr size_t kLongTextBytes = 16384;    // stderr and error file, to begin with.
constexpr size_t kOthersBytesMax = 16384;   // All others together.
constexpr size_t kOtherTextBytesMax = 200;  // A text of one of them.
constexpr size_t kStderrLinesSent = 30;
constexpr int64_t kCountMax = int64_t{1} << 30;
constexpr int64_t kBigMax = int64_t{1} << 52;
constexpr int64_t kTimeMax = int64_t{1} << 62;  // ns: the year 2116, far from any overflow.

std::string dump_detail(const WireJson& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, WireJson::error_handler_t::replace);
}

// ---- encoding

std::string sent_text(std::string_view raw, size_t bytes_max) {
  std::string text = valid_utf8(raw);
  if (text.size() <= bytes_max) return text;
  return std::string(utf8_prefix(text, bytes_max - 3)) + "...";
}

// Lines as they will be shown: the receiver's own cleaning finds nothing more to do. A long one is
// cut so far that it stays within a shown line together with the note about what was cut.
std::string sent_stderr(std::string_view raw, size_t bytes_max) {
  constexpr size_t kNoteCharacters = 40;
  const std::vector<std::string> lines =
      last_lines(raw, kStderrLinesSent, std::numeric_limits<size_t>::max());
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const bool fits = clean_line(*line) == *line;
    const std::string shown =
        fits ? *line : clean_line(*line, kLineCharactersMax - kNoteCharacters);
    if (text.size() + shown.size() + 1 > bytes_max) break;
    text.insert(0, shown + '\n');
  }
  return text;
}

// What the verdict reads of an error file is its message and the end of its call stack.
std::string sent_error_file(std::string_view raw, size_t bytes_max) {
  const std::string content = valid_utf8(raw);
  if (content.size() <= bytes_max) return content;
  const std::optional<WorkerError> error = parse_error_file(content);
  if (!error || !error->well_formed) return std::string(utf8_suffix(content, bytes_max));
  WireJson json;
  WireJson& message = json["message"];
  message["message"] = error->callstack.empty() ? utf8_suffix(error->message, bytes_max / 2)
                                                : utf8_prefix(error->message, bytes_max / 8);
  message["extraInfo"]["py_callstack"] = utf8_suffix(error->callstack, bytes_max / 2);
  if (error->unix_time_s) {
    message["extraInfo"]["timestamp"] = fmt::format("{}", *error->unix_time_s);
  }
  return dump_detail(json);
}

int64_t microseconds_of(double seconds) {
  const double microseconds = seconds * 1e6;
  const bool fits = microseconds >= 0 && microseconds <= static_cast<double>(kBigMax);
  return fits ? std::llround(microseconds) : 0;
}

WireJson sent_worker(const WorkerFailure& failure, size_t text_max) {
  const auto since_epoch = failure.time.time_since_epoch().count();
  WireJson json;
  json["rank"] = failure.rank;
  json["local_rank"] = failure.local_rank;
  json["pid"] = failure.pid;
  json["code"] = failure.status.signed_code();
  json["core"] = failure.status.core_dumped;
  json["stopped"] = failure.stopped_by_muster;
  json["declared"] = sent_text(failure.declared, text_max);
  json["device"] = sent_text(failure.device, text_max);
  json["time_ns"] = std::clamp<int64_t>(since_epoch, 0, kTimeMax);
  json["ran_ns"] = std::clamp<int64_t>(failure.ran.count(), 0, kTimeMax);
  json["max_rss_kib"] = std::clamp<int64_t>(failure.max_rss_kib, 0, kBigMax);
  json["cpu_us"] = microseconds_of(failure.cpu_s);
  return json;
}

WireJson sent_culprit(const WorkerFailure& failure, size_t long_max) {
  const size_t text_max = long_max / 4;
  WireJson json = sent_worker(failure, text_max);
  json["attempt"] = failure.attempt;
  json["role"] = sent_text(failure.role, text_max);
  json["program"] = sent_text(failure.program, text_max);
  json["binary"] = sent_text(failure.binary, text_max);
  json["stderr"] = sent_stderr(failure.stderr_tail, long_max);
  json["stdout_log"] = sent_text(failure.stdout_log_path, text_max);
  json["stderr_log"] = sent_text(failure.stderr_log_path, text_max);
  json["error_file"] = sent_text(failure.error_file_path, text_max);
  json["error_file_content"] =
      failure.error_file_content ? WireJson(sent_error_file(*failure.error_file_content, long_max))
                                 : WireJson();
  return json;
}

WireJson sent_cause(const Cause& cause, size_t text_max) {
  WireJson json;
  json["kind"] = failure_class_name(cause.kind);
  json["sentence"] = sent_text(cause.sentence, text_max);
  json["exception"] = sent_text(cause.exception, text_max);
  json["remedy"] = sent_text(cause.remedy, text_max);
  return json;
}

void put_others(WireJson& json, const JobReport& report) {
  json["others"] = WireJson::array();
  size_t bytes = 0;
  int untold = report.others_untold;
  for (size_t i = 0; i < report.failures.size(); ++i) {
    if (i == *report.culprit) continue;
    WireJson other = sent_worker(report.failures[i], kOtherTextBytesMax);
    bytes += dump_detail(other).size() + 1;
    if (bytes > kOthersBytesMax) {
      ++untold;
    } else {
      json["others"].push_back(std::move(other));
    }
  }
  json["others_untold"] = untold;
}

WireJson detail_json(const JobReport& report, size_t long_max) {
  const size_t text_max = long_max / 4;
  const bool by_worker = report.culprit.has_value();
  const WorkerFailure* culprit = by_worker ? &report.failures[*report.culprit] : nullptr;
  WireJson json;
  json["version"] = kDetailVersion;
  json["host"] = sent_text(by_worker ? culprit->host : report.host, text_max);
  json["node_rank"] =
      std::max(0, by_worker && culprit->node_rank >= 0 ? culprit->node_rank : report.node_rank);
  json["nodes"] = std::max(1, report.nnodes);
  json["world_size"] = std::max(1, report.world_size);
  json["restarts_used"] = report.restarts_used;
  json["max_restarts"] = report.max_restarts;
  if (by_worker) {
    json["culprit"] = sent_culprit(*culprit, long_max);
    json["cause"] = sent_cause(report.cause, text_max);
    put_others(json, report);
  } else {
    json["error"]["code"] = static_cast<int>(report.error.code);
    json["error"]["message"] = sent_text(report.error.message, text_max);
  }
  return json;
}

// ---- decoding

// Reads typed fields of one JSON object. The first thing that is missing, of another type or out of
// range clears `ok` and is named in `wrong`; what is read after that does not matter.
class DetailFields {
 public:
  DetailFields(const WireJson& json, std::string& wrong) : json_(json), wrong_(wrong) {
    if (!json_.is_object()) miss("object");
  }

  bool has(const char* key) const { return json_.is_object() && json_.contains(key); }

  const WireJson& at(const char* key) {
    static const WireJson kNothing;
    if (has(key)) return json_.find(key).value();
    miss(key);
    return kNothing;
  }

  std::string text(const char* key) {
    const WireJson& value = at(key);
    if (value.is_string()) return value.get<std::string>();
    miss(key);
    return {};
  }

  std::optional<std::string> text_or_null(const char* key) {
    if (at(key).is_null()) return {};
    return text(key);
  }

  bool flag(const char* key) {
    const WireJson& value = at(key);
    if (value.is_boolean()) return value.get<bool>();
    miss(key);
    return false;
  }

  int64_t number(const char* key, int64_t low, int64_t high) {
    const WireJson& value = at(key);
    const bool huge = value.is_number_unsigned() &&
                      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (value.is_number_integer() && !huge) {
      const auto number = value.get<int64_t>();
      if (number >= low && number <= high) return number;
    }
    miss(key);
    return low;
  }

  int count(const char* key) { return static_cast<int>(number(key, 0, kCountMax)); }

 private:
  void miss(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }

  const WireJson& json_;
  std::string& wrong_;
};

WorkerFailure received_worker(const WireJson& json, const RemoteFailure& remote,
                              std::string& wrong) {
  DetailFields fields(json, wrong);
  WorkerFailure failure;
  failure.rank = fields.count("rank");
  failure.local_rank = fields.count("local_rank");
  failure.pid = fields.count("pid");
  failure.host = remote.host;
  failure.node_rank = remote.node_rank;
  const auto code = static_cast<int>(fields.number("code", -(SIGRTMAX), 255));
  const bool core = fields.flag("core");
  failure.status = code >= 0 ? ExitStatus::exited(code) : ExitStatus::signaled(-code, core);
  failure.stopped_by_muster = fields.flag("stopped");
  failure.declared = fields.text("declared");
  failure.device = fields.text("device");
  failure.time = WallTime{std::chrono::nanoseconds{fields.number("time_ns", 0, kTimeMax)}};
  failure.ran = Duration{fields.number("ran_ns", 0, kTimeMax)};
  failure.max_rss_kib = static_cast<long>(fields.number("max_rss_kib", 0, kBigMax));
  failure.cpu_s = static_cast<double>(fields.number("cpu_us", 0, kBigMax)) / 1e6;
  return failure;
}

WorkerFailure received_culprit(const WireJson& json, const RemoteFailure& remote,
                               std::string& wrong) {
  WorkerFailure failure = received_worker(json, remote, wrong);
  DetailFields fields(json, wrong);
  failure.attempt = fields.count("attempt");
  failure.role = fields.text("role");
  failure.program = fields.text("program");
  failure.binary = fields.text("binary");
  failure.stderr_tail = fields.text("stderr");
  failure.stdout_log_path = fields.text("stdout_log");
  failure.stderr_log_path = fields.text("stderr_log");
  failure.error_file_path = fields.text("error_file");
  failure.error_file_content = fields.text_or_null("error_file_content");
  return failure;
}

Cause received_cause(const WireJson& json, std::string& wrong) {
  DetailFields fields(json, wrong);
  Cause cause;
  const std::string kind = fields.text("kind");
  bool known = false;
  for (int i = 0; i <= static_cast<int>(FailureClass::timer); ++i) {
    const auto one = static_cast<FailureClass>(i);
    if (kind != failure_class_name(one)) continue;
    cause.kind = one;
    known = true;
  }
  if (!known && wrong.empty()) wrong = "kind";
  cause.sentence = fields.text("sentence");
  cause.exception = fields.text("exception");
  cause.remedy = fields.text("remedy");
  return cause;
}

void receive_others(DetailFields& fields, RemoteFailure& remote, std::string& wrong) {
  const WireJson& others = fields.at("others");
  if (!others.is_array() && wrong.empty()) wrong = "others";
  for (const WireJson& json : others) {
    WorkerFailure other = received_worker(json, remote, wrong);
    if (!wrong.empty()) return;
    other.attempt = remote.culprit.attempt;
    other.role = remote.culprit.role;
    other.program = remote.culprit.program;
    other.binary = remote.culprit.binary;
    remote.others.push_back(std::move(other));
  }
  remote.others_untold = fields.count("others_untold");
}

RemoteFailure received_failure(const WireJson& json, std::string& wrong) {
  DetailFields fields(json, wrong);
  RemoteFailure remote;
  fields.number("version", kDetailVersion, kDetailVersion);
  remote.host = fields.text("host");
  remote.node_rank = fields.count("node_rank");
  remote.nodes = static_cast<int>(fields.number("nodes", 1, kCountMax));
  remote.world_size = static_cast<int>(fields.number("world_size", 1, kCountMax));
  remote.restarts_used = fields.count("restarts_used");
  remote.max_restarts = fields.count("max_restarts");
  if (fields.has("error")) {
    DetailFields error(fields.at("error"), wrong);
    const auto code = static_cast<int>(error.number("code", 1, 255));
    remote.error = Error{static_cast<ExitCode>(code), error.text("message")};
    return remote;
  }
  remote.culprit = received_culprit(fields.at("culprit"), remote, wrong);
  remote.cause = received_cause(fields.at("cause"), wrong);
  receive_others(fields, remote, wrong);
  return remote;
}

}  // namespace

std::string encode_failure_detail(const JobReport& report) {
  const bool of_the_node = report.end == JobEnd::spawn_failed || report.end == JobEnd::round_failed;
  if (!report.culprit && !of_the_node) return {};
  CHECK(!report.culprit || *report.culprit < report.failures.size());
  // Escapes may make six bytes of one; even then the last of these sizes fits.
  for (size_t long_max = kLongTextBytes; long_max >= 128; long_max /= 2) {
    std::string detail = dump_detail(detail_json(report, long_max));
    if (detail.size() <= kFailureDetailBytesMax) return detail;
  }
  CHECK(false);
}

Result<RemoteFailure> decode_failure_detail(std::string_view detail) {
  const auto refuse = [](std::string_view why) {
    return fail(ExitCode::rendezvous,
                fmt::format("cannot read what another node told of its failure: {}; is the same "
                            "version of muster installed on all nodes?",
                            why));
  };
  if (detail.empty()) return refuse("nothing was told");
  if (detail.size() > kFailureDetailBytesMax) return refuse("it is too long");
  const WireJson json =
      WireJson::parse(detail.begin(), detail.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return refuse("it is not JSON");
  std::string wrong;
  RemoteFailure remote = received_failure(json, wrong);
  if (!wrong.empty()) return refuse(fmt::format("field \"{}\" is missing or wrong", wrong));
  return remote;
}

std::string failure_sentence(const JobReport& report) {
  if (report.culprit) return clean_line(report.cause.sentence);
  const bool of_the_node = report.end == JobEnd::spawn_failed || report.end == JobEnd::round_failed;
  return of_the_node ? clean_line(report.error.message) : "no worker's end was seen";
}

}  // namespace muster
