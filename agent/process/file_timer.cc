#include "agent/process/file_timer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

namespace muster {
namespace {

// The highest real-time signal on Linux is 64; kill() refuses anything above.
constexpr int64_t kSignalMax = 64;

bool integer_within(const nlohmann::json& object, const char* key, int64_t low, int64_t high) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return false;
  if (it->is_number_unsigned() && it->get<uint64_t>() > static_cast<uint64_t>(high)) return false;
  const auto value = it->get<int64_t>();
  return value >= low && value <= high;
}

}  // namespace

std::optional<FileTimer> parse_file_timer_line(std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  // kill() takes 0 and negative pids for process groups; 1 is init.
  if (!object.is_object() || !integer_within(object, "pid", 2, std::numeric_limits<int>::max()) ||
      !integer_within(object, "signal", std::numeric_limits<int>::min(), kSignalMax))
    return std::nullopt;
  const nlohmann::json scope = object.value("scope_id", nlohmann::json());
  const nlohmann::json expiration = object.value("expiration_time", nlohmann::json());
  if (!scope.is_string() || !expiration.is_number()) return std::nullopt;
  FileTimer request{object["pid"].get<int>(), scope.get<std::string>(), expiration.get<double>(),
                    std::max(0, object["signal"].get<int>())};
  return std::isfinite(request.expiration_time) ? std::optional(request) : std::nullopt;
}

void FileTimers::apply(FileTimer request) {
  const std::pair key(request.pid, request.scope);
  if (request.expiration_time < 0) {
    timers_.erase(key);
  } else {
    timers_[key] = std::move(request);
  }
}

std::vector<FileTimer> FileTimers::expired(double now) {
  std::vector<FileTimer> deciding;
  for (const auto& [key, timer] : timers_) {
    if (timer.expiration_time > now) continue;
    const auto rank = [](const FileTimer& t) {
      return std::pair(t.signal == 0, t.expiration_time);
    };
    if (deciding.empty() || deciding.back().pid != timer.pid) {
      deciding.push_back(timer);
    } else if (rank(timer) < rank(deciding.back())) {
      deciding.back() = timer;
    }
  }
  for (const FileTimer& timer : deciding)
    forget(timer.pid);
  return deciding;
}

std::optional<double> FileTimers::next_deadline() const {
  std::optional<double> earliest;
  for (const auto& [key, timer] : timers_) {
    if (!earliest || timer.expiration_time < *earliest) earliest = timer.expiration_time;
  }
  return earliest;
}

void FileTimers::forget(int pid) {
  const auto first = timers_.lower_bound({pid, std::string()});
  timers_.erase(first, std::find_if(first, timers_.end(),
                                    [pid](const auto& timer) { return timer.first.first != pid; }));
}

}  // namespace muster
