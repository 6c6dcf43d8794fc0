#include "agent/report/event_log.h"

#include <nlohmann/json.hpp>

#include "agent/report/text.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

const char* event_name(JobEventKind kind) {
  switch (kind) {
    case JobEventKind::job_started:
      return "job_started";
    case JobEventKind::round_ready:
      return "round_ready";
    case JobEventKind::worker_started:
      return "worker_started";
    case JobEventKind::worker_exited:
      return "worker_exited";
    case JobEventKind::attempt_failed:
      return "attempt_failed";
    case JobEventKind::restarting:
      return "restarting";
    case JobEventKind::stopping:
      return "stopping";
    case JobEventKind::killing:
      return "killing";
    case JobEventKind::stopped:
      return "stopped";
    case JobEventKind::leftovers:
      return "leftovers";
    case JobEventKind::signal_received:
      return "signal_received";
    case JobEventKind::signal_forwarded:
      return "signal_forwarded";
    case JobEventKind::suspended:
      return "suspended";
    case JobEventKind::resumed:
      return "resumed";
    case JobEventKind::timer_expired:
      return "timer_expired";
    case JobEventKind::waiting:
      return "waiting";
    case JobEventKind::membership_changed:
      return "membership_changed";
    case JobEventKind::note:
      return "note";
    case JobEventKind::job_ended:
      return "job_ended";
  }
  CHECK(false);
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
  return json.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace muster
