#include "agent/hang/life.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// Share of one CPU, for the whole tree. Less is no work: a thread that waits for Python's GIL wakes
// every 5 ms, which costs 0.5 to 1.3 %.
constexpr double kCpuShare = 0.05;
// Limit for the whole tree; any byte of the waiting thread counts.
constexpr double kBytesPerSecond = 64 * 1024;
constexpr Duration kLongTimer = std::chrono::seconds(1);

struct Used {
  Duration cpu{};
  uint64_t bytes = 0;
  Duration most{};    // CPU time of one process,
  pid_t busiest = 0;  // which is this one.
};

// A process that has ended since counts with the parent that reaped it. Clamped, since CPU times
// are rounded sums of clock and ticks, which may fall.
Used used_between(const LifeLook& before, const LifeLook& after) {
  Used used;
  for (const auto& [pid, use] : after.tree) {
    const auto old = before.tree.find(pid);
    const bool same = old != before.tree.end() && old->second.start_ticks == use.start_ticks;
    const Duration cpu = same ? std::max(use.cpu - old->second.cpu, Duration{}) : use.cpu;
    const uint64_t bytes_before = same ? old->second.bytes : 0;
    used.cpu += cpu;
    used.bytes += use.bytes - std::min(use.bytes, bytes_before);
    if (cpu <= used.most) continue;
    used.most = cpu;
    used.busiest = pid;
  }
  return used;
}

Task other_than_root(const LifeLook& look, pid_t pid) {
  const auto process = look.tree.find(pid);
  if (pid == look.root || process == look.tree.end()) return {};
  return {pid, process->second.name};
}

// Without the number of a pipe or socket, which differs on each rank.
std::string kind_of_target(const LifeLook& look) {
  if (look.is_outside && !look.outside.empty()) return "socket:" + look.outside;
  const bool is_numbered = starts_with_any(look.target, {"pipe:[", "socket:["});
  return is_numbered ? look.target.substr(0, look.target.find('[')) : look.target;
}

uint64_t rounded_up(double rate) {
  return static_cast<uint64_t>(std::ceil(rate));
}

// Returns true if a task has not slept between the samples, so it computes. A polling task may be
// awake in both, more so on a busy machine, where it queues for a CPU, but has slept.
bool has_computed(const LifeLook& before, const LifeLook& after) {
  return std::ranges::any_of(after.runnable, [&](const auto& task) {
    const auto old = before.runnable.find(task.first);
    return old != before.runnable.end() && old->second == task.second;
  });
}

std::optional<Life> running_life(const LifeLook& before, const LifeLook& after) {
  const double gap = to_seconds(after.at - before.at);
  const Used used = used_between(before, after);
  Life life{.state = LifeState::running};
  const double share = to_seconds(used.cpu) / gap;
  if (share >= kCpuShare) {
    life.sign = LifeSign::computes;
    life.rate = rounded_up(share * 100);
    life.task = other_than_root(after, used.busiest);
    return life;
  }
  if (before.thread != after.thread) {
    life.task = other_than_root(after, after.process);
    return life;
  }
  const uint64_t own_bytes = after.bytes - std::min(after.bytes, before.bytes);
  const double rate = static_cast<double>(std::max(used.bytes, own_bytes)) / gap;
  if (own_bytes > 0 || rate >= kBytesPerSecond) {
    life.sign = LifeSign::moves_data;
    life.rate = rounded_up(rate);
    return life;
  }
  life.sign = LifeSign::waits_for_cpu;
  return has_computed(before, after) ? std::optional(std::move(life)) : std::nullopt;
}

Life uninterruptible_life(const LifeLook& look) {
  Life life{.state = LifeState::uninterruptible};
  if (look.state != 'D') {
    life.sign = LifeSign::other_task;
    life.task = look.uninterruptible;
    return life;
  }
  life.call = look.call;
  life.target = kind_of_target(look);
  life.wchan = look.wchan;
  return life;
}

// The kernel counts how often a thread goes to sleep; one sampled awake (after a signal or a
// debugger, say) has been woken once more.
uint64_t wakeups_between(const LifeLook& before, const LifeLook& after) {
  const auto awake = [](const LifeLook& look) -> uint64_t {
    return is_one_of(look.state, {'S', 'D', 'I'}) ? 0 : 1;
  };
  const uint64_t woken = after.wakeups + awake(after);
  return woken - std::min(woken, before.wakeups + awake(before));
}

// True if it waits for what its user types.
bool is_prompting(const LifeLook& look, const SystemCall& call) {
  if (!reads(call)) return false;
  return is_terminal(look.target) || (call.descriptor == 0 && look.process == look.root);
}

// The state of a thread that waits in a system call.
Life waiting_life(const LifeLook& before, const LifeLook& after, const SystemCall& call) {
  Life life{
      .call = call, .target = kind_of_target(after), .task = other_than_root(after, after.process)};
  life.call->child = 0;
  // A child that it waits for would be the waiting thread, had it been found.
  if (!call.is_known || call.waits_for == WaitsFor::child) return life;
  if (is_prompting(after, call)) {
    life.state = LifeState::prompting;
    return life;
  }
  const uint64_t wakeups = wakeups_between(before, after);
  if (!call.has_timer) {
    life.state = wakeups > 0        ? LifeState::running
                 : after.is_outside ? LifeState::asking
                                    : LifeState::blocked;
    if (wakeups > 0) life.sign = LifeSign::wakes;
    return life;
  }
  constexpr double kEarly = 0.9;  // Timers and samples are not exact.
  const double gap = to_seconds(after.at - before.at);
  const double limit = kEarly * to_seconds(kLongTimer);
  const bool is_long = call.timeout ? *call.timeout >= kLongTimer
                                    : wakeups == 0 || gap / static_cast<double>(wakeups) >= limit;
  life.state = LifeState::sleeping;
  if (is_long) return life;
  constexpr uint64_t kGilRate = 50;  // CPython's switch interval of 5 ms, on a busy machine.
  life.sign = LifeSign::wakes;
  life.rate = rounded_up(static_cast<double>(wakeups) / gap);
  const bool waits_for_gil = call.waits_for == WaitsFor::thread && life.rate > kGilRate;
  life.state = waits_for_gil ? LifeState::blocked : LifeState::asking;
  return life;
}

bool is_visible(const LifeLook& look) {
  return look.presence == LifeLook::Presence::visible;
}

// Compares start times too: a later process may have the same pid.
bool has_ended(const LifeLook& before, const LifeLook& after) {
  if (after.presence == LifeLook::Presence::gone) return true;
  return is_visible(before) && is_visible(after) &&
         before.tree.at(before.root).start_ticks != after.tree.at(after.root).start_ticks;
}

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

Life life_of(const LifeLook& before, const LifeLook& after) {
  using enum LifeState;
  if (has_ended(before, after)) return {.state = gone};
  if (!is_visible(before) || !is_visible(after) || after.at <= before.at)
    return {.sign = LifeSign::hidden_process};
  if (after.is_traced) return {.state = traced};
  if (after.state == 'T') return {.state = stopped};
  if (!after.thawing.empty()) return {.state = stopped, .thawing = after.thawing};
  if (auto life = running_life(before, after)) return *std::move(life);
  if (after.state == 'D' || after.uninterruptible.id > 0) return uninterruptible_life(after);
  // A polling thread may be awake in one sample.
  const std::optional<SystemCall>& call = after.call ? after.call : before.call;
  if (call) return waiting_life(before, after, *call);
  if (after.call_is_visible && before.call_is_visible) return {.state = running};
  return {.sign = LifeSign::hidden_call};
}

// ---- in words; names that workers choose are cleaned

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
