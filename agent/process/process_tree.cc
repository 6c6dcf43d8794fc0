#include "agent/process/process_tree.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/process/shared_memory.h"
#include "rendezvous/base/process_end.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::vector<ProcessEntry> all_processes() {
  std::vector<ProcessEntry> processes;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const pid_t pid = std::atoi(it->path().filename().c_str());  // 0: not a process.
    if (pid == 0) continue;
    if (auto process = look_at_entry(pid)) processes.push_back(std::move(*process));
  }
  return processes;
}

void reap_orphans(const std::vector<ProcessEntry>& tree, const std::set<pid_t>& except) {
  const pid_t self = getpid();
  for (const ProcessEntry& process : tree) {
    if (process.parent != self || except.contains(process.pid)) continue;
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG);
  }
}

// True if the thread is ending. `folder`: the thread's, below /proc/PID, with a trailing slash.
bool is_ending(pid_t pid, const std::string& folder) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING in the kernel's include/linux/sched.h
  const auto thread = parse_process_stat(read_process_file(pid, (folder + "stat").c_str()));
  if (!thread || (thread->flags & kExiting) != 0 || thread->state == 'Z' || thread->state == 'X')
    return true;
  const std::string status = read_process_file(pid, (folder + "status").c_str(), kStatusBytesMax);
  if (status_field(status, "\nCoreDumping:") == "1") return true;
  const uint64_t pending = signal_mask(status, "\nSigPnd:") | signal_mask(status, "\nShdPnd:");
  return has_signal(pending, SIGKILL);
}

}  // namespace

std::string read_process_file(pid_t pid, const char* name, size_t bytes_max) {
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/%s", pid, name);
  const UniqueFd fd(open(path.data(), O_RDONLY | O_CLOEXEC));
  return fd ? read_up_to(fd.get(), bytes_max) : "";
}

std::string_view status_field(std::string_view status, std::string_view key) {
  const size_t at = status.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view value = status.substr(at + key.size());
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  return value.substr(0, value.find('\n'));
}

uint64_t signal_mask(std::string_view status, std::string_view key) {
  const std::string_view mask = status_field(status, key);
  uint64_t bits = 0;
  std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
  return bits;
}

bool is_at_or_below(pid_t pid, pid_t ancestor) {
  while (pid != ancestor) {
    const std::optional<ProcessEntry> process = look_at_entry(pid);
    if (!process || process->parent <= 0) return false;
    pid = process->parent;
  }
  return true;
}

std::set<uid_t> users_below(pid_t root) {
  std::set<uid_t> users;
  for (const ProcessEntry& process : descendants_of(root, {})) {
    const std::string status = read_process_file(process.pid, "status", kStatusBytesMax);
    std::istringstream uids{std::string(status_field(status, "\nUid:"))};
    uid_t real = 0, effective = 0, saved = 0, of_files = 0;
    if (uids >> real >> effective >> saved >> of_files) users.insert({effective, of_files});
  }
  return users;
}

std::optional<bool> is_exiting(pid_t pid) {
  const std::optional<ProcessEntry> process = look_at_entry(pid);
  if (!process) return std::nullopt;
  if (!is_ending(pid, "")) return false;
  if (process->threads <= 1) return true;
  // The main thread may have ended alone (pthread_exit) while others go on.
  std::error_code gone;
  for (const auto& thread : fs::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    if (!is_ending(pid, "task/" + thread.path().filename().string() + "/")) return false;
  }
  return true;
}

std::optional<ProcessEntry> parse_process_stat(std::string_view line) {
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');  // The name itself may contain ')'.
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  ProcessEntry process;
  std::from_chars(line.data(), line.data() + open, process.pid);
  process.name = line.substr(open + 1, close - open - 1);

  // After the name: state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime
  // stime cutime cstime priority nice threads itrealvalue starttime ...
  const std::vector<std::string_view> words = split(trim(line.substr(close + 1)), ' ');
  if (words.size() < 20 || words[0].empty()) return std::nullopt;
  const auto read = [&words]<typename T>(size_t field, T& number) {
    number = whole_number<T>(words[field - 3]).value_or(number);
  };
  process.state = words[0][0];
  read(4, process.parent);
  read(5, process.group);
  read(9, process.flags);
  int64_t reaped_user = 0, reaped_system = 0;
  read(16, reaped_user);
  read(17, reaped_system);
  read(20, process.threads);
  read(22, process.start_ticks);
  if (words.size() > 49) read(52, process.wait_status);
  static const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  process.reaped_cpu =
      Duration(std::chrono::seconds(1)) / ticks_per_second * (reaped_user + reaped_system);
  return process;
}

std::vector<ProcessEntry> descendants_of(pid_t root, const std::set<pid_t>& except) {
  std::multimap<pid_t, ProcessEntry> by_parent;
  for (ProcessEntry& process : all_processes())
    by_parent.emplace(process.parent, std::move(process));
  std::vector<ProcessEntry> found;
  std::vector<pid_t> frontier{root};
  while (!frontier.empty()) {
    std::vector<pid_t> next;
    for (pid_t parent : frontier) {
      const auto [first, last] = by_parent.equal_range(parent);
      for (auto it = first; it != last; ++it) {
        if (except.contains(it->second.pid)) continue;
        next.push_back(it->second.pid);
        found.push_back(it->second);
      }
    }
    frontier = std::move(next);
  }
  return found;
}

std::optional<ProcessEntry> look_at_entry(pid_t pid) {
  return parse_process_stat(read_process_file(pid, "stat"));
}

// Ignores the owner of /proc/PID, which is root if the process changed its identity (proc(5)).
std::optional<uid_t> foreign_user_of(pid_t pid) {
  if (kill(pid, 0) == 0 || errno != EPERM) return std::nullopt;
  const std::string status = read_process_file(pid, "status", kStatusBytesMax);
  std::string_view uids = status_field(status, "\nUid:");
  return take_number<uid_t>(uids);
}

std::string refusal_text(const ProcessEntry& process) {
  const std::optional<uid_t> user = foreign_user_of(process.pid);
  return fmt::format("not permitted: pid {} ({}) runs as {}, and uid {} cannot stop it",
                     process.pid, process.name,
                     user ? fmt::format("uid {}", *user) : std::string("another user"), getuid());
}

SignalOutcome signal_process(const ProcessEntry& process, int signal) {
  // The pid may have been reused since the scan of /proc. A pidfd refers to one process for good,
  // so an equal start time now means that it is the process that was found. Where pidfds are
  // refused, the pid might still be reused between this check and the signal.
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  const auto now = look_at_entry(process.pid);
  const bool same = now && now->start_ticks == process.start_ticks;
  const bool sent = same && signal_by_end(pidfd, process.pid, signal);
  const bool refused = same && !sent && errno == EPERM;
  if (sent) return SignalOutcome::sent;
  return refused ? SignalOutcome::refused : SignalOutcome::gone;
}

std::vector<ProcessEntry> kill_descendants(const std::set<pid_t>& except, Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Duration pause = std::chrono::milliseconds(1);
  SeenProcesses seen;
  KillOrder order;
  while (true) {
    std::vector<ProcessEntry> tree;
    if (has_children()) tree = descendants_of(getpid(), except);
    add_seen(tree, seen);
    std::set<pid_t> refused;
    for (const ProcessEntry& process : order.due(tree)) {
      if (signal_process(process, SIGKILL) == SignalOutcome::refused) refused.insert(process.pid);
      signal_process(process, SIGCONT);
    }
    reap_orphans(tree, except);
    for (ProcessEntry& process : tree)
      process.refused = refused.contains(process.pid);
    const bool hopeless = std::ranges::all_of(tree, &ProcessEntry::refused);  // Or nothing is left.
    if (hopeless || std::chrono::steady_clock::now() >= deadline) {
      remove_shared_files(seen);
      return tree;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(20));
  }
}

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

std::set<pid_t> children_of_self() {
  std::set<pid_t> children;
  if (!has_children()) return children;
  const pid_t self = getpid();
  for (const ProcessEntry& process : all_processes()) {
    if (process.parent == self) children.insert(process.pid);
  }
  return children;
}

}  // namespace muster
