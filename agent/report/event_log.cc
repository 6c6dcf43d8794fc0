#include "agent/report/event_log.h"

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

}  // namespace muster
