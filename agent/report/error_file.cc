#include "agent/report/error_file.h"

#include <fmt/format.h>

#include "agent/report/last_words.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

// The JSON library recurses when it prints, and a program may write anything: limit the depth.
// Brackets inside strings count too, which only makes the limit stricter.
bool is_too_deep(std::string_view content) {
  constexpr int kDepthMax = 200;
  int depth = 0;
  for (const char c : content) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kDepthMax) return true;
  }
  return false;
}

ordered_json parse_or_discarded(std::string_view content) {
  if (is_too_deep(content)) return ordered_json(ordered_json::value_t::discarded);
  return ordered_json::parse(content.begin(), content.end(), nullptr, /*allow_exceptions=*/false);
}

bool is_blank_content(std::string_view content) {
  return content.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// torch writes the time as text; its reader also accepts numbers.
std::optional<int64_t> time_at(const ordered_json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return {};
  if (it->is_number_integer()) return it->get<int64_t>();
  if (it->is_number_float()) {
    const double seconds = it->get<double>();
    const bool fits = seconds > -1e15 && seconds < 1e15;
    return fits ? std::optional(static_cast<int64_t>(seconds)) : std::nullopt;
  }
  if (!it->is_string()) return {};
  std::string_view text = it->get_ref<const std::string&>();
  const std::optional<int64_t> seconds = take_number<int64_t>(text);
  return text.empty() || text.starts_with('.') ? seconds : std::nullopt;
}

WorkerError as_it_is(std::string_view content) {
  WorkerError error;
  error.message = std::string(content);
  error.well_formed = false;
  return error;
}

std::optional<WorkerError> from_message_object(const ordered_json& message) {
  WorkerError error;
  error.message = wire::text_at(message, "message");
  const auto extra = message.find("extraInfo");
  if (extra != message.end() && extra->is_object()) {
    error.callstack = wire::text_at(*extra, "py_callstack");
    error.unix_time_s = time_at(*extra, "timestamp");
  }
  if (error.message.empty()) error.message = last_words(error.callstack);
  if (error.message.empty() && error.callstack.empty()) return {};
  return error;
}

std::string dump(const ordered_json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
}

}  // namespace

std::optional<WorkerError> parse_error_file(std::string_view content) {
  if (is_blank_content(content)) return {};
  const ordered_json json = parse_or_discarded(content);
  if (!json.is_object()) return as_it_is(content);
  const auto message = json.find("message");
  if (message == json.end()) return as_it_is(content);
  if (message->is_string()) {
    WorkerError error;
    error.message = message->get<std::string>();
    error.unix_time_s = time_at(json, "timestamp");
    return error;
  }
  if (!message->is_object()) return as_it_is(content);
  std::optional<WorkerError> error = from_message_object(*message);
  return error ? error : as_it_is(content);
}

std::optional<std::string> launcher_error_file(const WorkerFailure& culprit) {
  if (!culprit.error_file_content || is_blank_content(*culprit.error_file_content)) return {};
  ordered_json json = parse_or_discarded(*culprit.error_file_content);
  if (json.is_discarded()) return {};
  if (json.is_object() && json.contains("message") && json["message"].is_object()) {
    json["message"]["errorCode"] = culprit.status.signed_code();
  }
  return dump(json);
}

std::string launcher_error_file(const Error& error, WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  ordered_json json;
  json["message"]["message"] = "muster: " + error.message;
  json["message"]["extraInfo"]["py_callstack"] = "";
  json["message"]["extraInfo"]["timestamp"] = fmt::format("{}", seconds);
  json["message"]["errorCode"] = static_cast<int>(error.code);
  return dump(json);
}

}  // namespace muster
