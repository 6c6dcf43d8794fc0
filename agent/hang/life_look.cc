#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "agent/hang/life.h"
#include "agent/hang/other_end.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/cgroup.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::hang {
namespace {

constexpr size_t kProcessesMax = 64;
constexpr size_t kThreadsMax = 512;

// A folder of /proc that stays that of one process, even if its pid is reused.
UniqueFd open_folder(int parent, const std::string& path) {
  return UniqueFd(openat(parent, path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// nullopt: refused, or gone.
std::optional<std::string> read_at(const UniqueFd& folder, const std::string& path) {
  const UniqueFd fd(openat(folder.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 8192> text;
  const ssize_t size = fd ? read(fd.get(), text.data(), text.size()) : -1;
  if (size < 0) return std::nullopt;
  return std::string(text.data(), static_cast<size_t>(size));
}

// The number after "\nkey:"; 0: none.
uint64_t status_number(std::string_view text, std::string_view key) {
  const std::optional<std::string_view> rest = text_after(text, key);
  if (!rest) return 0;
  return whole_number<uint64_t>(trim(rest->substr(0, rest->find('\n')))).value_or(0);
}

uint64_t io_bytes(const UniqueFd& folder, const std::string& path) {
  const std::string io = "\n" + read_at(folder, path).value_or("");
  return status_number(io, "\nrchar:") + status_number(io, "\nwchar:") +
         status_number(io, "\nread_bytes:") + status_number(io, "\nwrite_bytes:");
}

// CPU time of all threads, ended ones too, in nanoseconds: /proc counts in ticks of 10 ms.
Duration cpu_of(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

std::vector<pid_t> threads_of(const UniqueFd& folder, pid_t pid, int count, size_t most) {
  if (count <= 1) return {pid};
  UniqueFd tasks(openat(folder.get(), "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto close_list = [](DIR* list) { closedir(list); };
  const std::unique_ptr<DIR, decltype(close_list)> list(tasks ? fdopendir(tasks.get()) : nullptr);
  if (!list) return {};
  tasks.release();
  std::vector<pid_t> threads;
  while (threads.size() < most) {
    const dirent* const entry = readdir(list.get());
    if (entry == nullptr) break;
    if (const auto thread = whole_number<pid_t>(entry->d_name)) threads.push_back(*thread);
  }
  return threads;
}

// nullopt: the kernel lacks CONFIG_PROC_CHILDREN, or the thread is gone.
std::optional<std::vector<pid_t>> children_of(const UniqueFd& folder, pid_t thread) {
  const auto text = read_at(folder, fmt::format("task/{}/children", thread));
  if (!text) return std::nullopt;
  std::vector<pid_t> children;
  for (const std::string_view word : split(*text, ' ')) {
    if (const auto child = whole_number<pid_t>(word)) children.push_back(*child);
  }
  return children;
}

// The command that thaws the process's frozen cgroup; empty: none is frozen.
std::string thawing_of(pid_t pid) {
  for (const auto& group : cgroup_folders("freezer", "/", std::to_string(pid))) {
    if (number_in_file(group / "freezer.self_freezing") == 1)
      return fmt::format("echo THAWED >{}", (group / "freezer.state").string());
    if (number_in_file(group / "cgroup.freeze") == 1)
      return fmt::format("echo 0 >{}", (group / "cgroup.freeze").string());
  }
  return {};
}

uint64_t wakeups_of(std::string_view status) {
  return status_number(status, "\nvoluntary_ctxt_switches:");
}

struct Process {
  pid_t pid = 0;
  std::vector<pid_t> threads{};
  std::vector<pid_t> children{};
};

class Looker {
 public:
  explicit Looker(pid_t root) {
    look_.at = steady_now();
    look_.root = root;
  }

  LifeLook look(pid_t recorder) {
    walk_tree();
    if (look_.presence != LifeLook::Presence::visible) return std::move(look_);
    const Process* process = find(recorder);
    if (process == nullptr) process = find(look_.root);
    // Ends, since each process is looked at once.
    std::set<pid_t> seen;
    while (process != nullptr && seen.insert(process->pid).second) {
      look_at_waiting_thread(*process);
      const Process* const child = child_waited_for(*process);
      process = child != nullptr ? child : process_at_other_end(*process);
    }
    return std::move(look_);
  }

 private:
  void walk_tree() {
    std::vector<pid_t> pids{look_.root};
    for (size_t i = 0; i < pids.size() && processes_.size() < kProcessesMax; ++i) {
      if (!look_at_process(pids[i])) continue;
      const std::vector<pid_t>& children = processes_.back().children;
      pids.insert(pids.end(), children.begin(), children.end());
    }
  }

  // Returns false if it is gone or hidden.
  bool look_at_process(pid_t pid) {
    const bool is_root = pid == look_.root;
    const UniqueFd folder = open_folder(AT_FDCWD, fmt::format("/proc/{}", pid));
    const auto stat = folder ? read_at(folder, "stat") : std::nullopt;
    const auto entry = stat ? parse_process_stat(*stat) : std::nullopt;
    if (is_root && (entry ? is_over(*entry) : kill(pid, 0) != 0 && errno == ESRCH))
      look_.presence = LifeLook::Presence::gone;
    if (!entry || is_over(*entry)) return false;
    if (!add_process(folder, *entry)) return false;
    if (is_root) look_.presence = LifeLook::Presence::visible;
    look_.tree[pid] = {.start_ticks = entry->start_ticks,
                       .name = entry->name,
                       .cpu = cpu_of(pid) + entry->reaped_cpu,
                       .bytes = io_bytes(folder, "io")};
    note_state(folder, *entry, /*is_thread=*/false);
    return true;
  }

  bool add_process(const UniqueFd& folder, const ProcessEntry& entry) {
    Process process{.pid = entry.pid};
    process.threads =
        threads_of(folder, entry.pid, entry.threads, std::max<size_t>(threads_left_, 1));
    threads_left_ -= std::min(threads_left_, process.threads.size());
    for (const pid_t thread : process.threads) {
      const auto children = children_of(folder, thread);
      if (!children && thread == entry.pid) return false;
      if (children)
        process.children.insert(process.children.end(), children->begin(), children->end());
    }
    processes_.push_back(std::move(process));
    return true;
  }

  void note_state(const UniqueFd& folder, const ProcessEntry& task, bool is_thread) {
    if (task.state == 'R') {
      const auto status = read_at(folder, fmt::format("task/{}/status", task.pid));
      look_.runnable[task.pid] = wakeups_of(status.value_or(""));
    }
    if (task.state == 'D') look_.uninterruptible = {task.pid, task.name, is_thread};
  }

  void look_at_waiting_thread(const Process& process) {
    look_.process = process.pid;
    look_.call.reset();
    const UniqueFd folder = open_folder(AT_FDCWD, fmt::format("/proc/{}", process.pid));
    // The main thread may have ended before the others.
    for (const pid_t thread : process.threads) {
      look_.thread = thread;
      const UniqueFd task = open_folder(folder.get(), fmt::format("task/{}", thread));
      const std::string status = read_at(task, "status").value_or("");
      const std::string_view state = text_after(status, "\nState:\t").value_or("");
      look_.state = state.empty() ? '?' : state.front();
      if (is_one_of(look_.state, {'Z', 'X', '?'})) continue;
      look_.is_traced = look_.state == 't' || status_number(status, "\nTracerPid:") != 0;
      look_.wakeups = wakeups_of(status);
      look_.bytes = io_bytes(task, "io");
      look_at_call(task);
      // A frozen task is in D in cgroup v1; in v2 it sleeps on its way back to the program.
      if (look_.state == 'D' || look_.wchan.empty() ||
          is_one_of<std::string_view>(look_.wchan, {"do_freezer_trap", "get_signal"}))
        look_.thawing = thawing_of(process.pid);
      break;
    }
    if (look_.call && look_.call->waits_for != WaitsFor::descriptor)
      look_at_threads(folder, process);
  }

  void look_at_call(const UniqueFd& task) {
    const std::optional<std::string> text = read_at(task, "syscall");
    look_.call_is_visible = text.has_value();
    look_.call = parse_system_call(text.value_or(""));
    look_.wchan = read_at(task, "wchan").value_or("");
    if (look_.wchan == "0") look_.wchan.clear();
    look_.is_outside = false;
    look_.outside.clear();
    watched_.clear();
    look_.target = look_.call ? link_of(task, look_.call->descriptor) : "";
    if (look_.target != "anon_inode:[eventpoll]") return;
    const std::string info =
        read_at(task, fmt::format("fdinfo/{}", look_.call->descriptor)).value_or("");
    for (const std::string_view line : split(info, '\n')) {
      if (!line.starts_with("tfd:")) continue;
      std::string_view rest = trim(line.substr(4));
      watched_.push_back(link_of(task, take_number<int>(rest).value_or(-1)));
      if (is_terminal(watched_.back())) look_.target = watched_.back();
    }
  }

  static std::string link_of(const UniqueFd& task, int descriptor) {
    std::array<char, 1024> target;
    const std::string link = fmt::format("fd/{}", descriptor);
    const ssize_t size = readlinkat(task.get(), link.c_str(), target.data(), target.size());
    return descriptor < 0 || size <= 0 ? "" : std::string(target.data(), static_cast<size_t>(size));
  }

  // The waiting thread may wait for one that is stuck in the kernel or gets no CPU.
  void look_at_threads(const UniqueFd& folder, const Process& process) {
    for (const pid_t thread : process.threads) {
      const auto stat = read_at(folder, fmt::format("task/{}/stat", thread));
      const auto entry = stat ? parse_process_stat(*stat) : std::nullopt;
      if (entry) note_state(folder, *entry, /*is_thread=*/true);
    }
  }

  // The child started last, if waiting for any (as a shell does in wait4(-1)).
  const Process* child_waited_for(const Process& process) const {
    if (!look_.call || look_.call->waits_for != WaitsFor::child) return nullptr;
    if (std::ranges::find(process.children, look_.call->child) != process.children.end()) {
      if (const Process* const child = find(look_.call->child)) return child;
    }
    for (auto child = process.children.rbegin(); child != process.children.rend(); ++child) {
      if (const Process* const found = find(*child)) return found;
    }
    return nullptr;
  }

  // Also notes an end that is outside of the tree.
  const Process* process_at_other_end(const Process& process) {
    if (!look_.call || look_.call->has_timer) return nullptr;
    const SystemCall& call = *look_.call;
    look_.is_outside = is_one_of<std::string_view>(call.name, {"accept", "accept4", "connect"});
    const bool writes = is_one_of<std::string_view>(call.name, {"write", "writev"});
    if (look_.is_outside || (!writes && !polls(call) && !reads(call))) return nullptr;
    std::vector<pid_t> tree;
    for (const Process& one : processes_)
      tree.push_back(one.pid);
    watched_.push_back(look_.target);
    for (const std::string& target : watched_) {
      const OtherEnd end = other_end(process.pid, target, writes, tree);
      if (end.process > 0) return find(end.process);
      if (end.outside.empty()) continue;
      look_.is_outside = true;
      look_.outside = end.outside;
    }
    return nullptr;
  }

  const Process* find(pid_t pid) const {
    const auto found = std::ranges::find(processes_, pid, &Process::pid);
    return found == processes_.end() ? nullptr : &*found;
  }

  LifeLook look_;
  std::vector<Process> processes_;    // Parents before children; no ended ones.
  std::vector<std::string> watched_;  // Links of the descriptors that the thread's epoll watches.
  size_t threads_left_ = kThreadsMax;
};

}  // namespace

LifeLook look_at(pid_t root, pid_t recorder) {
  return Looker(root).look(recorder);
}

}  // namespace muster::hang
