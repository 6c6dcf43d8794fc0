#include "launcher/front.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "agent/control_channel.h"
#include "agent/process/job_cgroup.h"
#include "agent/process/process_tree.h"
#include "agent/process/signal_fd.h"
#include "agent/process/signal_witness.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/process_end.h"
#include "rendezvous/base/process_limit.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/stderr_line.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The same signal within this window is one request: timeout(1) signals the process and then the
// group, within microseconds, and a wrapper may pass on a key press that we got too. A second key
// press comes from the kernel and is never filtered.
constexpr auto kRepeatedKillWindow = std::chrono::milliseconds(100);
// A TERM within this window after the first stop signal is the same request, passed on by another
// process: few users repeat it so fast, and wrappers are slow.
constexpr auto kRepeatedTermWindow = std::chrono::seconds(2);
// Limit for the agent to stop the workers before the front suspends itself anyway.
constexpr int kSuspendPatienceMs = 1000;
constexpr auto kTreePatience = std::chrono::seconds(10);
constexpr auto kShortPatience = std::chrono::seconds(2);
// Time for the agent after a second stop signal before the front kills it.
constexpr auto kAgentPatienceAfterKill = std::chrono::seconds(2);
constexpr int kDeathPatienceMs = 1000;
constexpr int kAsideMs = 100;

constexpr std::array kUserStops{SIGTERM, SIGINT, SIGQUIT};
constexpr std::array kFaults{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
constexpr std::array kJobControl{SIGKILL, SIGSTOP, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};
constexpr std::array kOursOrNoise{SIGCHLD, SIGWINCH, SIGPIPE, SIGURG};

bool is_among(std::span<const int> signals, int signal) {
  return std::ranges::count(signals, signal) > 0;
}

int cannot_start(std::string_view call) {
  print_line(fmt::format("cannot start: {}", call_failed(call, errno)));
  return static_cast<int>(ExitCode::environment);
}

// Prints in a process of its own, because the console may be a file on a disk that hangs.
void tell_aside(const std::string& text) {
  if (fork() == 0) {
    print_line(text);
    _exit(0);
  }
  poll(nullptr, 0, kAsideMs);
}

// Restores the terminal's modes: a killed worker may leave it without echo, say, and shells restore
// only part of the modes.
class TerminalModes {
 public:
  TerminalModes() : saved_(tcgetattr(STDIN_FILENO, &modes_) == 0) {}

  // No-op in the background, where the terminal belongs to another job.
  void restore() const {
    if (saved_ && tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetattr(STDIN_FILENO, TCSANOW, &modes_);
  }

 private:
  termios modes_{};
  bool saved_;
};

std::string what_keeps(pid_t pid) {
  for (const ProcessEntry& process : descendants_of(getpid(), {})) {
    if (process.pid != pid) continue;
    // True if the first thread has ended and another hangs.
    const bool is_ending = process.state == 'Z' && !is_over(process);
    if (process.state == 'D' || is_ending)
      return "it hangs in the kernel, as on a disk that does not answer";
    if (process.state == 'T' || process.state == 't') return "it is stopped";
    return fmt::format("state {}", process.state);
  }
  return "its state is unknown";
}

class Front {
 public:
  Front(const std::vector<int>& stop_signals, int control_fd, int signal_fd, pid_t agent,
        UniqueFd agent_end, std::set<pid_t> foreign_children, bool hangup_ignored)
      : stop_signals_(stop_signals),
        control_fd_(control_fd),
        signal_fd_(signal_fd),
        agent_(agent),
        agent_end_(std::move(agent_end)),
        foreign_children_(std::move(foreign_children)),
        hangup_ignored_(hangup_ignored) {}

  int supervise();

 private:
  void on_signal(const signalfd_siginfo& info);
  void on_stop_signal(const signalfd_siginfo& info);
  bool is_repetition(int signal, Sender sender) const;
  void tell_agent(ControlMessage message);
  void suspend();
  bool is_continued();
  void hear_agent();
  void reap_adopted();
  int finish();

  bool ends_the_job(int signal) const {
    if (signal == SIGHUP && hangup_ignored_) return false;
    return is_among(kUserStops, signal) || signal == SIGHUP || is_among(stop_signals_, signal);
  }

  const std::vector<int>& stop_signals_;
  const int control_fd_;
  const int signal_fd_;
  const pid_t agent_;
  const UniqueFd agent_end_;          // Readable once the agent has ended.
  std::set<pid_t> foreign_children_;  // Children that this pid had before it became muster.
  const bool hangup_ignored_;
  const TerminalModes terminal_;
  std::deque<signalfd_siginfo> came_;  // Signals that is_continued() has read ahead.
  std::optional<SteadyClock::time_point> stop_requested_at_;
  std::optional<SteadyClock::time_point> kill_requested_at_;
  bool agent_talks_ = true;
  std::optional<int> exit_code_;  // As reported by the agent, whose process may not end.
  int stop_signal_ = 0;           // The first stop signal.
  Sender stop_sender_ = Sender::process;
};

int Front::supervise() {
  while (true) {
    for (; !came_.empty(); came_.pop_front())
      on_signal(came_.front());
    pollfd fds[] = {{signal_fd_, POLLIN, 0},
                    {agent_end_.get(), POLLIN, 0},
                    {agent_talks_ ? control_fd_ : -1, POLLIN, 0}};
    const Deadline patience =
        kill_requested_at_ ? *kill_requested_at_ + kAgentPatienceAfterKill : Deadline::max();
    const int ready = poll(fds, std::size(fds), poll_timeout(patience));
    if (fds[2].revents != 0) hear_agent();
    if (exit_code_ || (fds[1].revents & POLLIN) != 0) return finish();
    if (ready == 0) {
      print_line(
          fmt::format("the agent (pid {}) was told to kill the job and has not ended ({}): killing "
                      "the job without it",
                      agent_, what_keeps(agent_)));
      kill(agent_, SIGKILL);
      return finish();
    }
    signalfd_siginfo info{};
    if (ready > 0 && (fds[0].revents & POLLIN) != 0 &&
        read(signal_fd_, &info, sizeof info) == sizeof info) {
      on_signal(info);
    }
  }
}

void Front::on_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (ends_the_job(signal)) {
    on_stop_signal(info);
  } else if (signal == SIGTSTP) {
    suspend();
  } else if (signal == SIGCONT) {
    send_control(control_fd_, {ControlKind::resume, 0});
  } else if (signal == SIGWINCH) {
    send_control(control_fd_, {ControlKind::window_size, 0});
  } else if (signal == SIGCHLD) {
    reap_adopted();
  } else if (is_forwardable(signal, stop_signals_)) {
    send_control(control_fd_, {ControlKind::forward, signal, sender_of(info)});
  }
}

void Front::on_stop_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  const Sender sender = sender_of(info);
  if (!stop_requested_at_) {
    stop_requested_at_ = SteadyClock::now();
    stop_signal_ = signal;
    stop_sender_ = sender;
    return tell_agent({ControlKind::stop, signal, sender});
  }
  if (is_repetition(signal, sender)) return;
  if (sender == Sender::engine) return tell_agent({ControlKind::repeat, signal, sender});
  if (!is_among(kUserStops, signal)) return;
  if (!kill_requested_at_) kill_requested_at_ = SteadyClock::now();
  tell_agent({ControlKind::kill, stop_signal_});
}

// True if it is the first stop signal again, by another route.
bool Front::is_repetition(int signal, Sender sender) const {
  const auto since = SteadyClock::now() - *stop_requested_at_;
  const bool is_usual = is_among(kUserStops, stop_signal_) || stop_signal_ == SIGHUP;
  if (signal == SIGTERM && is_usual && sender != Sender::engine) return since < kRepeatedTermWindow;
  const bool keys = sender == Sender::kernel && stop_sender_ == Sender::kernel;
  return signal == stop_signal_ && !keys && since < kRepeatedKillWindow;
}

// Also sends SIGCONT, because a stopped agent reads no messages.
void Front::tell_agent(ControlMessage message) {
  send_control(control_fd_, message);
  kill(agent_, SIGCONT);
}

void Front::suspend() {
  send_control(control_fd_, {ControlKind::suspend, 0});
  pollfd fds[] = {{control_fd_, POLLIN, 0}, {agent_end_.get(), POLLIN, 0}};
  poll(fds, std::size(fds), kSuspendPatienceMs);
  hear_agent();
  if (exit_code_ || (fds[1].revents & POLLIN) != 0) return;
  if (is_continued()) return;
  kill(getpid(), SIGSTOP);
  // Running again: SIGCONT is in the signal descriptor and will resume the workers.
}

// True if SIGCONT arrived meanwhile, which SIGSTOP would discard (signal(7)). It may not be pending
// any more: if a thread stands in for signalfd(2), that thread has read it.
bool Front::is_continued() {
  pollfd ready{signal_fd_, POLLIN, 0};
  signalfd_siginfo info{};
  while (poll(&ready, 1, 0) == 1 && read(signal_fd_, &info, sizeof info) == sizeof info)
    came_.push_back(info);
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGCONT) == 1 ||
         std::ranges::any_of(came_, [](const auto& one) { return one.ssi_signo == SIGCONT; });
}

void Front::hear_agent() {
  ControlMessage message;
  ControlRead read = ControlRead::nothing;
  while ((read = receive_control(control_fd_, message)) == ControlRead::message) {
    if (message.kind == ControlKind::exiting) exit_code_ = message.signal;
  }
  agent_talks_ = read != ControlRead::closed;
}

// Reaps adopted orphans. Those from outside the job exist only if we are PID 1, or come from
// children that this pid had before. The agent is left to finish(), which needs its status.
void Front::reap_adopted() {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
    if (info.si_pid == agent_) return;
    foreign_children_.erase(info.si_pid);  // The job may reuse the pid.
    waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    info.si_pid = 0;
  }
}

int Front::finish() {
  pollfd ended{agent_end_.get(), POLLIN, 0};
  poll(&ended, 1, kDeathPatienceMs);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(agent_), &info, WEXITED | WNOHANG);
  const bool orderly = info.si_pid != 0 && info.si_code == CLD_EXITED;
  const bool reaped = info.si_pid != 0;
  // The agent has finished its work, but its process hangs and cannot be killed.
  if (exit_code_ && !reaped) foreign_children_.insert(agent_);
  const std::vector<ProcessEntry> left =
      kill_descendants(foreign_children_, orderly || !reaped ? kShortPatience : kTreePatience);
  for (const ProcessEntry& process : left) {
    if (process.pid == agent_) continue;  // Already reported.
    if (process.refused) {
      if (!orderly) print_line(refusal_text(process));  // Otherwise the agent has reported it.
      continue;
    }
    print_line(
        fmt::format("process {} ({}) cannot be killed (state {}); it may hold a GPU or a mount",
                    process.pid, process.name, process.state));
  }
  if (const auto cgroup = JobCgroup::path_for(agent_)) rmdir(cgroup->c_str());
  terminal_.restore();
  if (orderly) return info.si_status;
  if (exit_code_ && !reaped)
    tell_aside(fmt::format("the agent (pid {}) is left behind: {}", agent_, what_keeps(agent_)));
  if (exit_code_) return *exit_code_;
  if (!reaped) return static_cast<int>(ExitCode::unkillable);
  print_line(
      fmt::format("the agent (pid {}) was killed by {}; every process of the job has been killed",
                  agent_, signal_name(info.si_status)));
  return stop_requested_at_ ? 128 + stop_signal_ : static_cast<int>(ExitCode::internal);
}

// All signals except those raised by a fault of our own, which must end us at once, with a core
// dump if enabled.
sigset_t supervised_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : kFaults)
    sigdelset(&set, fault);
  return set;
}

}  // namespace

bool is_forwardable(int signal, const std::vector<int>& stop_signals) {
  return !is_among(stop_signals, signal) && !is_among(kUserStops, signal) && signal != SIGHUP &&
         !is_among(kFaults, signal) && !is_among(kJobControl, signal) &&
         !is_among(kOursOrNoise, signal);
}

int run_front(const std::vector<int>& stop_signals,
              const std::function<int(AgentContext)>& agent_main) {
  const bool hangup_ignored = is_ignored(SIGHUP);
  const sigset_t signals = supervised_signals();
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::signal(SIGCHLD, SIG_DFL);  // If ignored, children would be reaped automatically.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  // A pid that becomes muster by exec keeps its children, which are not part of the job.
  std::set<pid_t> foreign_children = children_of_self();

  int pair[2];
  const pid_t front = getpid();
  UniqueFd signal_fd = open_signal_fd(signals);
  if (!signal_fd || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return cannot_start("signalfd or socketpair");
  const pid_t group = getpgrp();
  const pid_t agent = fork();
  if (agent < 0) return cannot_start("fork");
  if (agent == 0) {
    // The agent's own process group lets it survive a signal to the front's group, from a terminal
    // or by kill -9, and clean up.
    setpgid(0, 0);
    close(pair[0]);
    signal_fd.reset();
    AgentContext context;
    context.control_fd = pair[1];
    context.front = front;
    context.hangup_ignored = hangup_ignored;
    context.front_group = group;
    _exit(agent_main(context));
  }
  setpgid(agent, agent);
  close(pair[1]);
  UniqueFd agent_end = open_process_end(agent);
  if (!agent_end) {
    const int code = cannot_start("pidfd_open");
    kill(agent, SIGKILL);
    return code;
  }
  Front supervisor(stop_signals, pair[0], signal_fd.get(), agent, std::move(agent_end),
                   std::move(foreign_children), hangup_ignored);
  return supervisor.supervise();
}

}  // namespace muster
