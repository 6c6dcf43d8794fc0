#include "agent/report/event_log.h"

#include <cmath>

#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

const char* event_name(JobEventKind kind) {
  return name_in<JobEventKind::job_ended>(
      {"job_started",    "round_ready", "worker_started",  "worker_exited",
       "attempt_failed", "restarting",  "stopping",        "killing",
       "stopped",        "leftovers",   "signal_received", "signal_forwarded",
       "suspended",      "resumed",     "timer_expired",   "waiting",
       "hang",           "mismatch",    "withdrawn",       "membership_changed",
       "straggler",      "note",        "job_ended"},
      kind);
}

template <typename T>
void put_if(ordered_json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

constexpr size_t kNewsRanksMax = 256;
constexpr size_t kNewsTextMax = 1024;
constexpr size_t kSaidParts = 4;  // `text` may be this many times as long as any other text.

void report_fields(auto& a, Like<HangReport> auto& m) {
  a.numbers("ranks", m.ranks, kNewsRanksMax);
  a("class", m.what);
  a("by", m.by);
  a("group", m.group);
  a("operation", m.operation);
  a.number("ordinal", m.ordinal, 0, wire::kTimeMax);
  a.numbers("waiting", m.waiting, kNewsRanksMax);
  int64_t milliseconds = std::llround(m.seconds * 1e3);
  a.number("milliseconds", milliseconds, 0, wire::kBigMax);
  if constexpr (wire::kReads<decltype(a)>) m.seconds = static_cast<double>(milliseconds) / 1e3;
  a("confidence", m.confidence);
  a("line", m.text);
  a("is_mismatch", m.is_mismatch);
}

void news_fields(auto& a, Like<HangNews> auto& m) {
  wire::one_of(a, "kind", m.kind, JobEventKind::job_ended);
  a.number("number", m.number, 0, wire::kTimeMax);
  a.number("failed_rank", m.failed_rank, -1, wire::kCountMax);
  a("is_final", m.is_final);
  a("report", m.report, [](auto& inner, auto& report) { report_fields(inner, report); });
}

}  // namespace

std::string event_line(const JobEvent& event) {
  ordered_json json;
  json["time"] = wall_time_iso(event.time);
  json["event"] = event_name(event.kind);
  put_if(json, "attempt", event.attempt);
  put_if(json, "rank", event.rank);
  put_if(json, "local_rank", event.local_rank);
  if (!event.host.empty()) json["host"] = event.host;
  put_if(json, "node_rank", event.node_rank);
  put_if(json, "pid", event.pid);
  if (event.status) {
    const bool exited = event.status->kind == ExitStatus::Kind::exited;
    if (exited) json["exit_code"] = event.status->value;
    if (!exited) json["signal"] = signal_name(event.status->value);
    if (event.status->core_dumped) json["core_dumped"] = true;
  }
  if (event.signal) json["signal"] = signal_name(*event.signal);
  put_if(json, "seconds", event.seconds);
  put_if(json, "exit_code", event.exit_code);
  if (!event.text.empty()) json["text"] = event.text;
  if (event.hang) {
    const ordered_json hang = hang_json(*event.hang);
    for (const auto& [key, value] : hang.items()) {
      if (!value.is_null()) json[key] = value;
    }
  }
  return wire::dump(json) + "\n";
}

std::string encode_hang_news(const HangNews& news) {
  std::string bytes;
  size_t text_max = kNewsTextMax;
  do {
    wire::JsonWriter writer(text_max);
    news_fields(writer, news);
    writer.put("text", wire::fitting_text(news.text, kSaidParts * text_max));
    bytes = wire::dump(writer.take());
    text_max /= 2;
  } while (bytes.size() > kHangNewsBytesMax);
  return bytes;
}

std::optional<HangNews> decode_hang_news(std::string_view bytes) {
  if (bytes.size() > kHangNewsBytesMax) return std::nullopt;
  const wire::Json json = wire::parse(bytes);
  std::string wrong;
  wire::JsonReader reader(json, wrong);
  HangNews news;
  news_fields(reader, news);
  reader("text", news.text);
  const bool is_ours = news.kind == JobEventKind::note || news.kind == JobEventKind::waiting ||
                       news.kind == JobEventKind::hang || news.kind == JobEventKind::mismatch ||
                       news.kind == JobEventKind::withdrawn || news.kind == JobEventKind::straggler;
  return wrong.empty() && is_ours ? std::optional(std::move(news)) : std::nullopt;
}

}  // namespace muster
