// A Life in words. Names that workers choose are cleaned.
#include <fmt/format.h>

#include "agent/hang/life.h"
#include "agent/report/text.h"

namespace muster::hang {
namespace {

// " (process 4712, cc1plus)"; empty: it is the root.
std::string process_text(const Task& task) {
  return task.id == 0 ? "" : fmt::format(" (process {}, {})", task.id, clean_line(task.name));
}

std::string running_text(const Life& life, const std::string& where) {
  switch (life.sign) {
    case LifeSign::computes:
      return fmt::format("running: {} % of a CPU{}", life.rate, process_text(life.task));
    case LifeSign::moves_data:
      return fmt::format("running: reads and writes {} a second",
                         bytes_text(static_cast<int64_t>(life.rate)));
    case LifeSign::waits_for_cpu:
      return "running: it gets hardly any CPU";
    case LifeSign::wakes:
      return "running: woken in " + where;
    default:
      return "running" + process_text(life.task);
  }
}

std::string uninterruptible_text(const Life& life) {
  if (life.sign == LifeSign::other_task)
    return fmt::format("uninterruptible: {} {} ({})", life.task.is_thread ? "thread" : "process",
                       life.task.id, clean_line(life.task.name));
  return fmt::format("uninterruptible{}{}",
                     life.call ? " in " + describe(*life.call, life.target) : "",
                     life.wchan.empty() ? "" : fmt::format(" ({})", clean_line(life.wchan)));
}

std::string unknown_text(const Life& life, const std::string& where) {
  if (life.sign == LifeSign::hidden_process) return "its process is hidden";
  if (life.sign == LifeSign::hidden_call) return "its system call is hidden";
  return where.empty() ? where : "waits in " + where;
}

}  // namespace

std::string describe(const Life& life) {
  const std::string where =
      life.call ? describe(*life.call, life.target) + process_text(life.task) : "";
  switch (life.state) {
    case LifeState::gone:
      return "gone";
    case LifeState::traced:
      return "held by a debugger";
    case LifeState::stopped:
      return life.thawing.empty() ? "stopped (as by SIGSTOP)"
                                  : fmt::format("frozen with its cgroup (resume it with `{}`)",
                                                clean_line(life.thawing));
    case LifeState::running:
      return running_text(life, where);
    case LifeState::uninterruptible:
      return uninterruptible_text(life);
    case LifeState::sleeping:
      return "sleeping in " + where;
    case LifeState::asking:
      return life.sign == LifeSign::wakes
                 ? fmt::format("polling {} times a second in {}", life.rate, where)
                 : "waiting for an answer in " + where;
    case LifeState::prompting:
      return "waiting for its user in " + where;
    case LifeState::blocked:
      return life.sign == LifeSign::wakes
                 ? fmt::format("blocked: polls {} times a second in {}", life.rate, where)
                 : "blocked in " + where;
    case LifeState::unknown:
      return unknown_text(life, where);
  }
  return {};
}

}  // namespace muster::hang
