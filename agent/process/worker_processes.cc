#include "agent/process/worker_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <boost/asio/post.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/signal_fd.h"
#include "agent/process/stop_receivers.h"
#include "rendezvous/base/process_end.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// Interval of the scans after SIGKILL. SIGCHLD drives most scans; the timer catches what a process
// that is not our child forked between two of them.
constexpr auto kKillAgainAfter = std::chrono::milliseconds(50);
constexpr auto kTracedAgainAfter = std::chrono::milliseconds(50);

// A process younger than this may have started after the engine listed the processes to signal.
constexpr auto kJustStarted = std::chrono::milliseconds(20);
constexpr auto kWrappersTurn = std::chrono::seconds(1);

// SIGCHLD for the orphans that we adopt; the rest because an engine, or a user who means the front,
// may signal this process itself.
constexpr std::array kHeard{SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

UniqueFd open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kHeard)
    sigaddset(&set, signal);
  return open_signal_fd(set, SFD_NONBLOCK);
}

std::pair<pid_t, uint64_t> key_of(const ProcessEntry& process) {
  return {process.pid, process.start_ticks};
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

WorkerLimits limits_of(pid_t pid) {
  const auto limit_of = [pid](auto resource) {
    rlimit limit{WorkerLimits::kNone, WorkerLimits::kNone};
    prlimit(pid, resource, nullptr, &limit);
    return limit;
  };
  return {.cpu_s = limit_of(RLIMIT_CPU).rlim_max,
          .stack_bytes = limit_of(RLIMIT_STACK).rlim_cur,
          .processes = limit_of(RLIMIT_NPROC).rlim_cur};
}

}  // namespace

WorkerProcesses::WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks)
    : io_(io),
      callbacks_(std::move(callbacks)),
      signals_(io, open_signals().release()),
      kill_timer_(io),
      cgroup_(JobCgroup::create()) {
  wait_for_signals();
}

void WorkerProcesses::begin_attempt(int workers) {
  workers_.clear();
  workers_.resize(static_cast<size_t>(workers));
  seen_.clear();
  kill_order_ = {};
  already_signalled_.clear();
  left_to_traps_.clear();
  stop_signal_.reset();
  killing_ = kill_is_refused_ = false;
  watching_ = false;
  kill_timer_.cancel();
}

Result<pid_t> WorkerProcesses::start(int local_rank, SpawnRequest request) {
  if (cgroup_) request.cgroup_procs_fd = cgroup_->procs_fd();
  const auto before = std::chrono::system_clock::now();
  Result<SpawnedProcess> process = spawn(request);
  if (!process) return tl::unexpected<Error>(process.error());
  Worker& worker = workers_[static_cast<size_t>(local_rank)];
  worker.pid = process->pid;
  worker.exited = worker.has_signal = false;
  worker.started = std::chrono::steady_clock::now();
  worker.end = std::make_unique<boost::asio::posix::stream_descriptor>(io_, process->end.release());
  seen_[worker.pid] = {before, std::chrono::system_clock::now()};
  wait_for(local_rank);
  return worker.pid;
}

void WorkerProcesses::wait_for(int local_rank) {
  Worker& worker = workers_[static_cast<size_t>(local_rank)];
  worker.end->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this, local_rank, pid = worker.pid](boost::system::error_code error) {
                           if (!error) on_end(local_rank, pid);
                         });
}

// Uses the raw system call for its rusage, which neither waitpid nor Boost.Process returns.
void WorkerProcesses::on_end(int local_rank, pid_t pid) {
  Worker& worker = workers_[static_cast<size_t>(local_rank)];
  if (worker.exited || worker.pid != pid) return;
  const WorkerLimits limits = limits_of(pid);  // Readable for a zombie too.
  siginfo_t info{};
  rusage usage{};
  const long waited = syscall(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG, &usage);
  if (waited != 0 || info.si_pid == 0) {
    // It has ended, but a tracer keeps it from being reaped (ptrace(2)). Another wait for its end
    // would return at once, so poll.
    worker.again = std::make_unique<boost::asio::steady_timer>(io_);
    return call_after(*worker.again, kTracedAgainAfter,
                      [this, local_rank, pid] { on_end(local_rank, pid); });
  }
  worker.exited = true;
  seen_[pid].to = std::chrono::system_clock::now();
  worker.end.reset();
  WorkerExit exit{local_rank,
                  worker.pid,
                  exit_status_from_siginfo(info.si_code, info.si_status),
                  std::chrono::steady_clock::now() - worker.started,
                  usage.ru_maxrss,
                  seconds(usage.ru_utime) + seconds(usage.ru_stime),
                  limits};
  callbacks_.exited(exit);
  if (stop_signal_) signal_rest_soon();
  reap_orphans();
  check_empty();
}

void WorkerProcesses::wait_for_signals() {
  signals_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this](boost::system::error_code error) {
                        if (error) return;
                        on_signals();
                        wait_for_signals();
                      });
}

void WorkerProcesses::on_signals() {
  signalfd_siginfo info{};
  while (read(signals_.native_handle(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) callbacks_.signalled(info);
  }
  reap_orphans();
  check_empty();
}

// Peeks before it reaps (WNOWAIT): workers are reaped when their descriptors show their end,
// helpers by their owner. Either one hides the orphans behind it, and SIGCHLDs may be merged, so
// the owner calls this again after reaping. epoll reports the pidfds of workers in the order of
// their deaths; waitid(P_ALL) would report workers in the order in which they were started.
void WorkerProcesses::reap_orphans() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const pid_t pid = info.si_pid;
    if (abandoned_helpers_.contains(pid)) {
      abandoned_helpers_.erase(pid);
      helpers_.erase(pid);
    } else if (helpers_.contains(pid)) {
      return;
    }
    const bool is_worker = std::ranges::any_of(
        workers_, [&](const Worker& worker) { return worker.pid == pid && !worker.exited; });
    if (is_worker) return;
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    info.si_pid = 0;
    if (stop_signal_ && !killing_) signal_rest_soon();  // Its children are orphans now.
  }
}

// A helper that hangs in a driver cannot be reaped yet; in helpers_ it is not part of the job.
void WorkerProcesses::remove_helper(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0) {
    abandoned_helpers_.insert(pid);
  } else {
    helpers_.erase(pid);
  }
  reap_orphans();
  check_empty();
}

std::vector<AtStop> WorkerProcesses::look() const {
  std::vector<AtStop> seen;
  for (const Worker& worker : workers_) {
    if (worker.exited) {
      seen.push_back(worker.pid == 0 ? AtStop::unknown : AtStop::ended);
      continue;
    }
    pollfd ended{worker.end->native_handle(), POLLIN, 0};
    if (poll(&ended, 1, 0) == 1) {
      seen.push_back(AtStop::ended);
      continue;
    }
    const std::optional<bool> exiting = is_exiting(worker.pid);
    seen.push_back(!exiting ? AtStop::unknown : *exiting ? AtStop::exiting : AtStop::running);
  }
  return seen;
}

void WorkerProcesses::send_to_group(const Worker& worker, int signal) {
  // The leader is not reaped, so its pid, and with it the group's number, cannot be reused. EPERM:
  // no process of the group could be signalled (kill(2)).
  if (worker.exited || ::kill(-worker.pid, signal) == 0 || errno != EPERM) return;
  if (const auto leader = look_at_entry(worker.pid)) refuse(*leader);
}

SignalOutcome WorkerProcesses::send(const ProcessEntry& process, int signal) {
  const SignalOutcome outcome = signal_process(process, signal);
  if (outcome == SignalOutcome::refused) refuse(process);
  return outcome;
}

void WorkerProcesses::refuse(const ProcessEntry& process) {
  if (refused_.insert(key_of(process)).second) callbacks_.refused(process);
}

void WorkerProcesses::stop(int signal, const std::set<int>& spared) {
  stop_signal_ = signal;
  const std::vector<ProcessEntry> tree = descendants();
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    const bool is_due = !worker.exited && !spared.contains(static_cast<int>(i));
    if (is_due && !std::exchange(worker.has_signal, true)) stop_worker(tree, worker);
    send_to_group(worker, SIGCONT);
  }
  signal_rest(tree);
  watch_empty();
  // Ctrl-C in a terminal reaches the children as well: a receiver that by now only waits for them
  // counts as a wrapper, so the search runs again and signals below it.
  if (signal != SIGINT || std::ranges::all_of(workers_, &Worker::exited)) return;
  call_after(kill_timer_, kWrappersTurn, [this, tree] {
    for (const Worker& worker : workers_) {
      if (!worker.exited) signal_receivers(tree, worker.pid);
    }
  });
}

void WorkerProcesses::stop_worker(const std::vector<ProcessEntry>& tree, const Worker& worker) {
  const std::vector<pid_t> receivers = signal_receivers(tree, worker.pid);
  if (!receivers.empty()) return follow(tree, receivers);
  for (const ProcessEntry& process : tree) {
    if (process.group == worker.pid) already_signalled_.insert(key_of(process));
  }
  send_to_group(worker, *stop_signal_);
}

// Signals and returns the receivers; empty if nothing at or below `root` handles the signal.
std::vector<pid_t> WorkerProcesses::signal_receivers(const std::vector<ProcessEntry>& tree,
                                                     pid_t root) {
  auto [receivers, left_to_traps] = stop_receivers(tree, root, *stop_signal_, signal_use_of);
  for (const ProcessEntry& process : tree) {
    if (std::ranges::count(receivers, process.pid) > 0) send_once(process, *stop_signal_);
    if (std::ranges::count(left_to_traps, process.pid) > 0) left_to_traps_.insert(key_of(process));
  }
  return receivers;
}

// Sends TERM to the shells above the receivers once all of these have ended: otherwise a shell's
// loop would start the next command.
void WorkerProcesses::follow(const std::vector<ProcessEntry>& tree,
                             const std::vector<pid_t>& receivers) {
  const auto shells = std::make_shared<std::vector<ProcessEntry>>();
  std::set<pid_t> above;
  for (auto process = tree.rbegin(); process != tree.rend(); ++process) {  // Children first.
    const bool receives = std::ranges::count(receivers, process->pid) > 0;
    if (!receives && !above.contains(process->pid)) continue;
    above.insert(process->parent);
    if (!receives && is_shell(signal_use_of(process->pid))) shells->push_back(*process);
  }
  if (shells->empty()) return;
  for (const pid_t pid : receivers) {
    UniqueFd end = open_process_end(pid);
    if (!end) continue;
    const auto ended = std::make_shared<boost::asio::posix::stream_descriptor>(io_, end.release());
    ended->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, shells, ended](boost::system::error_code error) {
                        if (error || shells.use_count() > 1) return;
                        for (const ProcessEntry& shell : *shells)
                          send_once(shell, SIGTERM);
                      });
  }
}

void WorkerProcesses::send_once(const ProcessEntry& process, int signal) {
  if (is_over(process) || !already_signalled_.insert(key_of(process)).second) return;
  send(process, signal);
  signal_process(process, SIGCONT);
}

void WorkerProcesses::stop_rest() {
  for (const ProcessEntry& process : descendants()) {
    if (!cleans_up(process)) send_once(process, SIGTERM);
  }
}

void WorkerProcesses::have_signal(std::chrono::steady_clock::time_point when) {
  for (Worker& worker : workers_)
    worker.has_signal = !worker.exited && when - worker.started >= kJustStarted;
  std::set<pid_t> left_out = helpers_;
  for (const Worker& worker : workers_) {
    if (!worker.has_signal) left_out.insert(worker.pid);
  }
  for (const ProcessEntry& process : descendants_of(getpid(), left_out))
    already_signalled_.insert(key_of(process));
}

bool WorkerProcesses::may_handle(int signal) const {
  return std::ranges::any_of(workers_, [&](const Worker& worker) {
    return worker.exited || muster::may_handle(signal_use_of(worker.pid), signal);
  });
}

std::set<pid_t> WorkerProcesses::live_workers_and_helpers() const {
  std::set<pid_t> pids = helpers_;
  for (const Worker& worker : workers_) {
    if (!worker.exited) pids.insert(worker.pid);
  }
  return pids;
}

// Many workers may end in the same turn of the loop: one scan of the tree covers them all.
void WorkerProcesses::signal_rest_soon() {
  if (std::exchange(rest_pending_, true)) return;
  boost::asio::post(io_, [this] {
    rest_pending_ = false;
    if (stop_signal_) signal_rest(descendants());
  });
}

// Signals what no live worker needs. An orphan in a live worker's group may still serve it.
void WorkerProcesses::signal_rest(const std::vector<ProcessEntry>& tree) {
  const std::set<pid_t> live = live_workers_and_helpers();
  std::set<pid_t> all_of;  // Orphans whose trees do not handle the signal, and all below them.
  add_seen(tree, seen_);
  for (const ProcessEntry& process : tree) {
    const bool is_root = process.parent == getpid();
    if (is_root ? live.contains(process.group) || left_to_traps_.contains(key_of(process)) ||
                      !signal_receivers(tree, process.pid).empty()
                : !all_of.contains(process.parent))
      continue;
    all_of.insert(process.pid);
    if (!cleans_up(process)) signal_orphan(process);
  }
  kill_order_.due(tree);
  if (kill_order_.only_helpers() && !killing_)
    call_after(kill_timer_, KillOrder::kCleanUp, [this] { kill(); });
}

// Sends TERM if the stop signal is ignored: a shell without job control starts background jobs with
// INT and QUIT ignored, and such an orphan would make every Ctrl-C take two thirds of the grace.
void WorkerProcesses::signal_orphan(const ProcessEntry& process) {
  const std::string status = read_process_file(process.pid, "status", kStatusBytesMax);
  const uint64_t ignored = signal_mask(status, "\nSigIgn:");
  send_once(process, has_signal(ignored, *stop_signal_) ? SIGTERM : *stop_signal_);
}

std::set<pid_t> WorkerProcesses::seen_pids() const {
  std::set<pid_t> pids;
  for (const auto& [pid, started] : seen_)
    pids.insert(pid);
  return pids;
}

void WorkerProcesses::kill() {
  killing_ = true;
  watching_ = true;
  kill_round();
}

void WorkerProcesses::kill_round() {
  if (!killing_) return;
  bool refused = false;
  const std::vector<ProcessEntry> tree = descendants();
  add_seen(tree, seen_);
  const std::vector<ProcessEntry> due = kill_order_.due(tree);
  const bool all_at_once = cgroup_ && !kill_order_.spares();
  if (all_at_once) cgroup_->kill();
  bool others = all_at_once || kill_order_.spares();
  for (const ProcessEntry& process : due) {
    (send(process, SIGKILL) == SignalOutcome::refused ? refused : others) = true;
    signal_process(process, SIGCONT);
  }
  call_after(kill_timer_, kKillAgainAfter, [this] { kill_round(); });
  reap_orphans();
  check_empty();
  kill_is_refused_ = killing_ && refused && !others;
  if (kill_is_refused_) callbacks_.kill_refused();
}

void WorkerProcesses::watch_empty() {
  watching_ = true;
  check_empty();
}

bool WorkerProcesses::nothing_left() const {
  for (const Worker& worker : workers_) {
    if (!worker.exited) return false;
  }
  if (!has_children()) return true;
  return !helpers_.empty() && descendants().empty();
}

void WorkerProcesses::check_empty() {
  if (!watching_) return;
  reap_orphans();
  if (!nothing_left()) return;
  watching_ = false;
  killing_ = false;
  kill_timer_.cancel();
  remove_shared_files(seen_);
  callbacks_.empty();
}

void WorkerProcesses::forward(int signal) {
  for (size_t rank = 0; rank < workers_.size(); ++rank)
    forward_to(static_cast<int>(rank), signal);
}

bool WorkerProcesses::forward_to(int local_rank, int signal) {
  const Worker& worker = workers_[static_cast<size_t>(local_rank)];
  return !worker.exited && ::kill(worker.pid, signal) == 0;  // Unreaped: it has the pid.
}

// SIGSTOP, not SIGTSTP: a worker leads an orphaned process group, for which the terminal stop
// signals are ignored (setpgid(2), POSIX "orphaned process group").
void WorkerProcesses::suspend() {
  for (const Worker& worker : workers_)
    send_to_group(worker, SIGSTOP);
}

void WorkerProcesses::resume() {
  for (const Worker& worker : workers_)
    send_to_group(worker, SIGCONT);
}

}  // namespace muster
