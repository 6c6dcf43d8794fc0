#include "agent/process/signal_witness.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

// So that neither `pkill muster` nor `pkill -f` with a word of its command line finds it.
void take_another_name() {
  std::ifstream file("/proc/self/cmdline");
  const std::string line(std::istreambuf_iterator<char>(file), {});
  std::memset(program_invocation_name, 0, line.size());
  prctl(PR_SET_NAME, "signal-witness");
}

[[noreturn]] void watch(const sigset_t& signals, int says, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();
  syscall(SYS_close_range, 0, says - 1, 0);
  syscall(SYS_close_range, says + 1, ~0U, 0);
  take_another_name();
  const int signal_fd = signalfd(-1, &signals, 0);
  signalfd_siginfo info{};
  while (getppid() == parent && read(signal_fd, &info, sizeof info) == sizeof info) {
    const SignalWitness::Seen seen{static_cast<int>(info.ssi_signo), sender_of(info),
                                   std::chrono::steady_clock::now()};
    if (write(says, &seen, sizeof seen) != sizeof seen) break;
  }
  _exit(0);
}

}  // namespace

SignalWitness::SignalWitness(const sigset_t& signals) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  seen_.reset(ends[0]);
  const UniqueFd says(ends[1]);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) watch(signals, says.get(), parent);
}

SignalWitness::~SignalWitness() {
  if (end() > 0) waitpid(pid_, nullptr, 0);
}

pid_t SignalWitness::end() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;  // It has ended before.
  if (pid_ > 0) kill(pid_, SIGKILL);
  return pid_;
}

std::optional<SignalWitness::Seen> SignalWitness::next() {
  Seen seen;
  const ssize_t n = read(seen_.get(), &seen, sizeof seen);
  if (n == 0) seen_.reset();  // It has ended: a closed pipe would wake poll() for ever.
  if (n != sizeof seen) return std::nullopt;
  return seen;
}

}  // namespace muster
