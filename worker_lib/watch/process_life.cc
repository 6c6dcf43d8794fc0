#include "worker_lib/watch/process_life.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::worker {
namespace {

// The number in the brackets of "net:[4026531840]".
uint64_t namespace_number(const char* kind) {
  struct stat info{};
  const std::string path = fmt::format("/proc/self/ns/{}", kind);
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::string boot_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? "host:" + own_host_name() : boot;
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The fields of /proc/PID/stat from the third, the state, on; the program's name before it may
// contain anything. Empty: the process is gone.
std::vector<std::string> stat_fields(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return {};
  std::istringstream fields(text.substr(bracket + 1));
  return {std::istream_iterator<std::string>(fields), {}};
}

bool is_over(const std::vector<std::string>& fields) {
  return fields.size() < 20 || fields[0] == "Z" || fields[0] == "X";
}

// 0: the process is over.
uint64_t start_ticks(int pid) {
  const std::vector<std::string> fields = stat_fields(pid);
  uint64_t ticks = 0;
  return !is_over(fields) && parse_number(std::string_view(fields[19]), ticks) ? ticks : 0;
}

bool is_visible_here(const ProcessLife& life) {
  return life.boot == boot_identity() && life.pid_namespace == namespace_number("pid") &&
         life.pid_namespace != 0 && life.started != 0;
}

}  // namespace

std::string ProcessLife::to_string() const {
  return fmt::format("{}/{}/{}/{}", boot, pid_namespace, pid, started);
}

std::optional<ProcessLife> ProcessLife::parse(std::string_view text) {
  std::array<std::string_view, 3> numbers;
  for (size_t i = numbers.size(); i-- > 0;) {
    const size_t slash = text.rfind('/');
    if (slash == std::string_view::npos) return std::nullopt;
    numbers[i] = text.substr(slash + 1);
    text = text.substr(0, slash);
  }
  ProcessLife life;
  life.boot = text;
  const bool valid = !text.empty() && parse_number(numbers[0], life.pid_namespace) &&
                     parse_number(numbers[1], life.pid) && parse_number(numbers[2], life.started);
  return valid ? std::optional(life) : std::nullopt;
}

ProcessLife life_of_process(int pid) {
  return {boot_identity(), namespace_number("pid"), pid, start_ticks(pid)};
}

bool surely_lives(const ProcessLife& life) {
  return is_visible_here(life) && start_ticks(life.pid) == life.started;
}

bool may_still_live(const ProcessLife& life) {
  return !is_visible_here(life) || start_ticks(life.pid) == life.started;
}

ProcessState state_of(const ProcessLife& life) {
  if (!is_visible_here(life)) return ProcessState::unknown;
  const std::vector<std::string> fields = stat_fields(life.pid);
  uint64_t started = 0;
  if (is_over(fields) || !parse_number(std::string_view(fields[19]), started) ||
      started != life.started)
    return ProcessState::over;
  return fields[0] == "T" || fields[0] == "t" ? ProcessState::stopped : ProcessState::running;
}

bool is_exiting(int pid) {
  constexpr uint64_t kExiting = 0x4;  // PF_EXITING of the kernel's linux/sched.h.
  const std::vector<std::string> fields = stat_fields(pid);
  uint64_t flags = 0;
  return fields.size() > 6 && parse_number(std::string_view(fields[6]), flags) &&
         (flags & kExiting) != 0;
}

std::string node_identity() {
  return fmt::format("{}/{}/{}", boot_identity(), namespace_number("net"),
                     namespace_number("user"));
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                           : "unknown host";
}

}  // namespace muster::worker
