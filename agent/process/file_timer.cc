#include "agent/process/file_timer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

// The highest real-time signal on Linux is 64; kill() refuses anything above.
constexpr int64_t kSignalMax = 64;

tl::unexpected<Error> bad_timer_line(std::string_view what) {
  return fail(
      ExitCode::environment,
      fmt::format("ignored a line in the timer FIFO: {}; expected one JSON object with pid, "
                  "scope_id, expiration_time and signal",
                  what));
}

bool integer_within(const nlohmann::json& object, const char* key, int64_t low, int64_t high) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return false;
  if (it->is_number_unsigned() && it->get<uint64_t>() > static_cast<uint64_t>(high)) return false;
  const auto value = it->get<int64_t>();
  return value >= low && value <= high;
}

}  // namespace

Result<FileTimerRequest> parse_file_timer_line(std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (object.is_discarded()) return bad_timer_line("it is not JSON");
  if (!object.is_object()) return bad_timer_line("it is not an object");
  // 0 and negative pids mean process groups to kill(), and 1 is init.
  if (!integer_within(object, "pid", 2, std::numeric_limits<int>::max())) {
    return bad_timer_line("pid is missing or not a process number");
  }
  if (!integer_within(object, "signal", std::numeric_limits<int>::min(), kSignalMax)) {
    return bad_timer_line("signal is missing or not a signal number");
  }
  const auto scope = object.find("scope_id");
  if (scope == object.end() || !scope->is_string())
    return bad_timer_line("scope_id is not a string");
  const auto expiration = object.find("expiration_time");
  if (expiration == object.end() || !expiration->is_number()) {
    return bad_timer_line("expiration_time is not a number");
  }
  FileTimerRequest request{object.find("pid")->get<int>(), scope->get<std::string>(),
                           expiration->get<double>(), object.find("signal")->get<int>()};
  if (!std::isfinite(request.expiration_time)) return bad_timer_line("expiration_time is infinite");
  return request;
}

void FileTimers::apply(const FileTimerRequest& request) {
  const std::pair<int, std::string> key(request.pid, request.scope);
  if (request.expiration_time < 0) {
    timers_.erase(key);
  } else {
    timers_[key] = Timer{request.expiration_time, request.signal};
  }
}

std::vector<FileTimerExpiry> FileTimers::expired(double now) {
  std::map<int, std::vector<FileTimerRequest>> by_pid;
  for (const auto& [key, timer] : timers_) {
    if (timer.expiration_time > now) continue;
    by_pid[key.first].push_back({key.first, key.second, timer.expiration_time, timer.signal});
  }
  std::vector<FileTimerExpiry> result;
  for (auto& [pid, due] : by_pid) {
    // Equal times are ordered by scope, so that the result is deterministic.
    std::sort(due.begin(), due.end(), [](const auto& a, const auto& b) {
      return std::tie(a.expiration_time, a.scope) < std::tie(b.expiration_time, b.scope);
    });
    auto decisive =
        std::find_if(due.begin(), due.end(), [](const auto& t) { return t.signal > 0; });
    if (decisive == due.end()) decisive = due.begin();
    FileTimerExpiry expiry{
        pid, std::max(decisive->signal, 0), decisive->scope, decisive->expiration_time, {}};
    for (const FileTimerRequest& timer : due)
      expiry.scopes.push_back(timer.scope);
    result.push_back(std::move(expiry));
    forget(pid);
  }
  return result;
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
  auto last = first;
  while (last != timers_.end() && last->first.first == pid)
    ++last;
  timers_.erase(first, last);
}

}  // namespace muster
