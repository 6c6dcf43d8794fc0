#include "agent/stacks/tree_look.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "agent/hang/other_end.h"
#include "agent/process/exit_status.h"
#include "agent/report/cause.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

using hang::Life;
using hang::LifeLook;
using hang::LifeState;
using hang::WaitsFor;

constexpr size_t kLocksBytesMax = 1 << 20;

// The most telling first.
enum class Clue : uint8_t { first, cause, odd, waits, may_be_idle, idle };

// A worker of a pool waits at a queue: a pipe, a socket or a lock, perhaps with a timer.
Clue clue_of(const Life& life) {
  if (is_one_of(life.state, {LifeState::uninterruptible, LifeState::stopped, LifeState::traced,
                             LifeState::running}))
    return Clue::odd;
  if (life.state == LifeState::unknown || !life.call) return Clue::idle;
  const bool sleeps = contains(life.call->name, "nanosleep");
  if (life.call->has_timer && !sleeps && life.state != LifeState::blocked) return Clue::idle;
  const bool is_at_queue =
      life.call->waits_for == WaitsFor::thread || hang::polls(*life.call) ||
      (hang::reads(*life.call) && starts_with_any(life.target, {"pipe:", "socket:"}));
  return is_at_queue && life.state == LifeState::blocked ? Clue::may_be_idle : Clue::waits;
}

std::string ended_text(int wait_status, const HostEvidence& memory) {
  // A status that /proc hides is 0, too.
  if (wait_status == 0) return "has ended";
  const ExitStatus status = exit_status_from_wait(wait_status);
  if (status.killed_by(SIGKILL)) {
    const Cause cause = classify_kill({}, memory);
    if (cause.kind == FailureClass::oom) return "was " + cause.sentence;
  }
  return (status.signal() > 0 ? "was " : "") + describe(status);
}

void add_lock_holder(ProcessStack& process) {
  const UniqueFd file(open("/proc/locks", O_RDONLY | O_CLOEXEC));
  const pid_t pid = file ? lock_holder(read_up_to(file.get(), kLocksBytesMax), process.pid) : 0;
  const std::optional<ProcessEntry> holder = look_at_entry(pid);
  const bool is_hidden = !holder && (kill(pid, 0) == 0 || errno != ESRCH);
  if (pid == 0 || is_hidden) return;
  process.lock_holder = pid;
  if (holder && !is_over(*holder)) process.lock_holder_name = holder->name;
}

bool holds_both_ends(const LifeLook& look) {
  if (look.call->has_timer || !hang::reads(*look.call)) return false;
  std::vector<pid_t> all{getpid()};
  for (const ProcessEntry& process : descendants_of(getpid(), {})) {
    if (!is_over(process)) all.push_back(process.pid);
  }
  return hang::is_sole_holder(look.process, look.target, all);
}

}  // namespace

pid_t lock_holder(std::string_view locks, pid_t waiter) {
  pid_t holder = 0;
  pid_t found = 0;
  for (const std::string_view line : split(locks, '\n')) {
    // "3: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF", then "3: -> FLOCK ..." for each waiter.
    std::vector<std::string_view> words = split(line, ' ');
    std::erase(words, "");
    const bool waits = words.size() > 1 && words[1] == "->";
    if (words.size() < (waits ? 6U : 5U)) continue;
    const pid_t pid = whole_number<pid_t>(words[waits ? 5 : 4]).value_or(0);
    if (!waits) holder = std::max(pid, 0);
    if (!waits || pid != waiter) continue;
    // Two threads of the process wait for different ones.
    if (found != 0 && found != holder) return 0;
    found = holder;
  }
  return found;
}

std::vector<pid_t> TreeFindings::worth_reading(size_t most) const {
  std::vector<pid_t> children;
  std::set<std::pair<std::string, std::string>> seen;
  for (size_t i = 1; i < processes.size() && children.size() < most; ++i) {
    const ProcessStack& child = processes[i];
    if (!child.is_idle && child.ended.empty() && seen.emplace(child.name, child.doing).second)
      children.push_back(child.pid);
  }
  return children;
}

void TreeFindings::add_to(RankStacks& stacks) const {
  const std::vector<ProcessStack> read = std::exchange(stacks.processes, processes);
  stacks.processes_left_out = left_out;
  for (const ProcessStack& one : read) {
    const bool is_idle = !one.frames.empty() && !is_at_work(one.frames);
    const auto child = std::ranges::find(stacks.processes, one.pid, &ProcessStack::pid);
    if (child == stacks.processes.end()) continue;
    child->frames = one.frames;
    for (ProcessStack& other : stacks.processes) {
      if (other.name == child->name && other.doing == child->doing)
        other.is_idle |= is_idle && may_be_idle.contains(other.pid);
    }
  }
}

TreeLook::TreeLook(pid_t process, const std::vector<ProcessEntry>& all, size_t& left) {
  std::set<pid_t> below;
  for (const ProcessEntry& one : all) {  // Parents before their children.
    if (one.pid != process && !below.contains(one.parent)) continue;
    below.insert(one.pid);
    if (tree_.size() == kProcessesMax || left == 0) {
      ++left_out_;
      continue;
    }
    --left;
    tree_.push_back(one);
    looks_.push_back(is_over(one) ? hang::LifeLook() : hang::look_at(one.pid));
  }
}

TreeFindings TreeLook::finish(const HostEvidence& memory) const {
  std::multimap<Clue, ProcessStack> found;
  pid_t awaited = 0;  // The process at the end of what the first one waits for.
  for (size_t i = 0; i < tree_.size(); ++i) {
    ProcessStack process{.pid = tree_[i].pid, .name = tree_[i].name};
    if (is_over(tree_[i])) {
      process.ended = ended_text(tree_[i].wait_status, memory);
      process.is_idle = tree_[i].wait_status == 0;
      found.emplace(process.is_idle ? Clue::idle : Clue::cause, std::move(process));
      continue;
    }
    const LifeLook look = hang::look_at(process.pid);
    const Life life = hang::life_of(looks_[i], look);
    const bool is_first = i == 0;
    if (is_first) awaited = look.process;
    const bool waits_itself = look.process == 0 || look.process == process.pid;
    // One that waits for a process below it is told by that one.
    const bool is_told = !waits_itself && is_at_or_below(look.process, process.pid) &&
                         std::ranges::find(tree_, look.process, &ProcessEntry::pid) != tree_.end();
    if (!is_first && (is_told || life.state == LifeState::gone)) continue;
    process.doing = describe(life);
    const Clue clue = is_first ? Clue::first : process.pid == awaited ? Clue::cause : clue_of(life);
    process.is_idle = clue == Clue::idle;
    if (waits_itself && look.call) {
      process.waits_for_thread = look.call->waits_for == WaitsFor::thread;
      if (is_one_of<std::string_view>(look.call->name, {"flock", "fcntl"}))
        add_lock_holder(process);
      process.is_sole_holder = is_first && holds_both_ends(look);
    }
    found.emplace(clue, std::move(process));
  }
  TreeFindings findings{.processes = {}, .left_out = left_out_, .may_be_idle = {}};
  for (auto& [clue, process] : found) {
    if (clue == Clue::may_be_idle) findings.may_be_idle.insert(process.pid);
    findings.processes.push_back(std::move(process));
  }
  return findings;
}

}  // namespace muster
