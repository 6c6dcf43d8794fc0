#include "agent/report/torch_events.h"

#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/report/error_file.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

std::string python_json(const ordered_json& json);

template <typename Range, typename Write>
std::string joined(const Range& range, char open, char close, Write write) {
  std::string text(1, open);
  for (auto it = range.begin(); it != range.end(); ++it) {
    if (it != range.begin()) text += ", ";
    text += write(it);
  }
  return text + close;
}

std::string scalar_json(const ordered_json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
}

// Formats like Python's json.dumps, with its spaces and ASCII only: some users parse it by regex.
std::string python_json(const ordered_json& json) {
  if (json.is_object()) {
    return joined(json, '{', '}',
                  [](auto it) { return scalar_json(it.key()) + ": " + python_json(it.value()); });
  }
  if (json.is_array()) return joined(json, '[', ']', [](auto it) { return python_json(*it); });
  return scalar_json(json);
}

template <typename T>
ordered_json json_or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json group_metadata(const TorchEventContext& context) {
  ordered_json json;
  json["group_world_size"] = json_or_null(context.group_world_size);
  json["entry_point"] = context.entry_point;
  return json;
}

// The keys of every event, in torch's order.
ordered_json common_metadata(const TorchEventContext& context, const std::string& state,
                             const ordered_json& details) {
  ordered_json json;
  json["run_id"] = context.run_id;
  json["global_rank"] = ordered_json();
  json["group_rank"] = json_or_null(context.group_rank);
  json["worker_id"] = ordered_json();
  json["role"] = context.role;
  json["hostname"] = context.hostname;
  json["state"] = state;
  json["total_run_time"] = context.total_run_time_s;
  json["rdzv_backend"] = context.rdzv_backend;
  json["raw_error"] = ordered_json();
  json["metadata"] = python_json(details);
  json["agent_restarts"] = context.agent_restarts;
  return json;
}

std::string event_text(const TorchEventContext& context, const std::string& name,
                       const char* source, const ordered_json& metadata) {
  using std::chrono::milliseconds;
  ordered_json json;
  json["name"] = name;
  json["source"] = source;
  json["timestamp"] = std::chrono::floor<milliseconds>(context.time).time_since_epoch().count();
  json["metadata"] = metadata;
  return python_json(json) + "\n";
}

std::string status_name(const std::string& state) {
  return "torchelastic.worker.status." + state;
}

// The worker's error file as it is, else what torch reports for a failure without one.
std::string raw_error_of(const WorkerFailure& failure) {
  if (failure.error_file_content) {
    const std::optional<WorkerError> error = parse_error_file(*failure.error_file_content);
    if (error && error->well_formed) {
      return python_json(ordered_json::parse(*failure.error_file_content, nullptr, false));
    }
    if (error) return python_json(ordered_json{{"message", error->message}});
  }
  ordered_json json;
  json["message"] = "<NONE>";
  if (failure.status.kind == ExitStatus::Kind::exited) {
    json["errorTraits"]["category"] = "system_terminated_error";
    json["errorTraits"]["retryability"] = "False";
  }
  return python_json(json);
}

}  // namespace

std::string torch_agent_event(const TorchEventContext& context, const std::string& state,
                              std::optional<double> duration_ms,
                              const std::optional<std::string>& raw_error) {
  ordered_json metadata = common_metadata(context, state, group_metadata(context));
  metadata["raw_error"] = json_or_null(raw_error);
  metadata["duration_ms"] = json_or_null(duration_ms);
  return event_text(context, status_name(state), "AGENT", metadata);
}

std::string torch_worker_event(const TorchEventContext& context, const TorchWorker& worker,
                               const std::string& state, const WorkerFailure* failure) {
  ordered_json details = group_metadata(context);
  // A stray comma in torch makes one-element tuples of these, and parsers rely on it.
  details["local_rank"] = ordered_json::array({worker.local_rank});
  details["role_rank"] = ordered_json::array({worker.role_rank});
  details["role_world_size"] = ordered_json::array({worker.role_world_size});
  details["exit_code"] =
      ordered_json::array({failure ? ordered_json(failure->status.signed_code()) : ordered_json()});
  details["worker_pid"] =
      ordered_json::array({failure ? ordered_json(failure->pid) : ordered_json()});
  ordered_json metadata = common_metadata(context, state, details);
  metadata["global_rank"] = worker.global_rank;
  metadata["worker_id"] = fmt::format("{}", worker.pid);
  if (failure) metadata["raw_error"] = raw_error_of(*failure);
  metadata["duration_ms"] = ordered_json();
  return event_text(context, status_name(state), "WORKER", metadata);
}

}  // namespace muster
