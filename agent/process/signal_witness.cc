#include "agent/process/signal_witness.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/process_tree.h"
#include "agent/process/signal_fd.h"
#include "agent/process/spawn.h"

namespace muster {
namespace {

// Overwrites our command line with the last words of `looks`, as many as it has room for.
void take_command_line(const std::vector<std::string>& looks) {
  std::ifstream file("/proc/self/cmdline");
  const std::string line(std::istreambuf_iterator<char>(file), {});
  std::string text;
  for (auto word = looks.rbegin(); word != looks.rend(); ++word) {
    if (text.size() + word->size() + 1 > line.size()) break;
    text = *word + '\0' + text;
  }
  text.resize(line.size());
  std::memcpy(program_invocation_name, text.data(), text.size());
}

[[noreturn]] void watch(const std::vector<std::string>& looks, int says, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();
  dup2(says, 0);  // Nothing else stays open.
  close_descriptors(1, ~0U);
  take_command_line(looks);
  prctl(PR_SET_NAME, "signal-witness");
  sigset_t signals;
  sigprocmask(SIG_BLOCK, nullptr, &signals);
  siginfo_t info{};
  while (getppid() == parent) {
    if (sigwaitinfo(&signals, &info) < 0) continue;  // EINTR: it was stopped.
    const SignalWitness::Seen seen{info.si_signo, sender_of(signalfd_info(info)),
                                   std::chrono::steady_clock::now()};
    if (write(0, &seen, sizeof seen) != sizeof seen) break;
  }
  _exit(0);
}

}  // namespace

Sender sender_of(const signalfd_siginfo& info) {
  const auto pid = static_cast<pid_t>(info.ssi_pid);
  if (info.ssi_code > 0) return Sender::kernel;
  if (info.ssi_code != SI_USER) return Sender::process;
  if (const std::string name = read_process_file(pid, "comm"); !name.empty()) {
    if (name.starts_with("slurmstepd")) return Sender::engine;
    return name == "systemd\n" ? Sender::manager : Sender::process;
  }
  // The daemon outlives its signal. A kill(1) by root has probably ended, and is not an engine.
  const bool is_hidden = kill(pid, 0) != 0 && errno == EPERM;
  const bool is_daemon = is_hidden && info.ssi_uid == 0 && std::getenv("SLURM_JOB_ID") != nullptr;
  return is_daemon ? Sender::engine : Sender::process;
}

// Cloned so that it ends without SIGCHLD: then waitid(P_ALL), by which the owner waits for all
// other children, does not count it ("__WCLONE" in waitpid(2)).
SignalWitness::SignalWitness(const std::vector<std::string>& looks) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  seen_.reset(ends[0]);
  const UniqueFd says(ends[1]);
  const pid_t parent = getpid();
  pid_ = static_cast<pid_t>(syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr));
  if (pid_ == 0) watch(looks, says.get(), parent);
}

SignalWitness::~SignalWitness() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, __WALL);
}

bool SignalWitness::was_sent(int signal) const {
  const std::string status = read_process_file(pid_, "status", kStatusBytesMax);
  return pid_ > 0 && has_signal(signal_mask(status, "\nShdPnd:"), signal);
}

std::optional<SignalWitness::Seen> SignalWitness::next() {
  Seen seen;
  const ssize_t n = read(seen_.get(), &seen, sizeof seen);
  if (n == 0) seen_.reset();  // The process has ended: a closed pipe would wake poll() for ever.
  if (n != sizeof seen) return std::nullopt;
  return seen;
}

}  // namespace muster
