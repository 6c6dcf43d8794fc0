#include "worker_lib/watch/process_life.h"

#include <array>
#include <csignal>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/machine.h"
#include "rendezvous/base/process_stat.h"
#include "rendezvous/base/text.h"

namespace muster::worker {
namespace {

bool is_visible_here(const ProcessLife& life) {
  return life.boot == boot_identity() && life.pid_namespace == own_namespace("pid") &&
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
  const std::optional<uint64_t> pid_namespace = whole_number<uint64_t>(numbers[0]);
  const std::optional<int> pid = whole_number<int>(numbers[1]);
  const std::optional<uint64_t> started = whole_number<uint64_t>(numbers[2]);
  if (text.empty() || !pid_namespace || !pid || !started) return std::nullopt;
  return ProcessLife{std::string(text), *pid_namespace, *pid, *started};
}

ProcessLife life_of_process(int pid) {
  return {boot_identity(), own_namespace("pid"), pid, start_ticks(stat_fields(pid))};
}

bool surely_lives(const ProcessLife& life) {
  const ProcessState state = state_of(life);
  return state == ProcessState::running || state == ProcessState::stopped;
}

bool may_still_live(const ProcessLife& life) {
  return state_of(life) != ProcessState::over;
}

ProcessState state_of(const ProcessLife& life) {
  if (!is_visible_here(life)) return ProcessState::unknown;
  const std::vector<std::string> fields = stat_fields(life.pid);
  if (start_ticks(fields) != life.started) return ProcessState::over;
  return fields[0] == "T" || fields[0] == "t" ? ProcessState::stopped : ProcessState::running;
}

bool is_exiting(int pid) {
  // PF_EXITING, and PF_SIGNALED which comes before, of the kernel's linux/sched.h.
  constexpr uint64_t kExiting = 0x4 | 0x400;
  // Its main thread may have to run yet, to see that it is killed or that another one has ended the
  // process. Looked at first: the flags follow.
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
    const auto pending =
        whole_number<uint64_t>(std::string_view(line).substr(line.find_last_of(" \t") + 1), 16);
    if (((pending.value_or(0) >> (SIGKILL - 1)) & 1) != 0) return true;
  }
  const std::vector<std::string> fields = stat_fields(pid);
  return fields.size() > 6 && (whole_number<uint64_t>(fields[6]).value_or(0) & kExiting) != 0;
}

std::string node_identity() {
  return fmt::format("{}/{}", machine_identity(), own_namespace("user"));
}

}  // namespace muster::worker
