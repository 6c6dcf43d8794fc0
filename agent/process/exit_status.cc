#include "agent/process/exit_status.h"

#include <algorithm>
#include <array>
#include <csignal>

#include <fmt/format.h>
#include <sys/wait.h>

#include "rendezvous/base/error.h"

namespace muster {

namespace {

struct SignalWord {
  int number;
  const char* name;
};

// Linux signal names. Our own table: only glibc has sigabbrev_np, and the names must not depend on
// the machine that prints them.
constexpr std::array kSignalWords = {
    SignalWord{SIGHUP, "SIGHUP"},   SignalWord{SIGINT, "SIGINT"},
    SignalWord{SIGQUIT, "SIGQUIT"}, SignalWord{SIGILL, "SIGILL"},
    SignalWord{SIGTRAP, "SIGTRAP"}, SignalWord{SIGABRT, "SIGABRT"},
    SignalWord{SIGBUS, "SIGBUS"},   SignalWord{SIGFPE, "SIGFPE"},
    SignalWord{SIGKILL, "SIGKILL"}, SignalWord{SIGUSR1, "SIGUSR1"},
    SignalWord{SIGSEGV, "SIGSEGV"}, SignalWord{SIGUSR2, "SIGUSR2"},
    SignalWord{SIGPIPE, "SIGPIPE"}, SignalWord{SIGALRM, "SIGALRM"},
    SignalWord{SIGTERM, "SIGTERM"}, SignalWord{SIGSTKFLT, "SIGSTKFLT"},
    SignalWord{SIGCHLD, "SIGCHLD"}, SignalWord{SIGCONT, "SIGCONT"},
    SignalWord{SIGSTOP, "SIGSTOP"}, SignalWord{SIGTSTP, "SIGTSTP"},
    SignalWord{SIGTTIN, "SIGTTIN"}, SignalWord{SIGTTOU, "SIGTTOU"},
    SignalWord{SIGURG, "SIGURG"},   SignalWord{SIGXCPU, "SIGXCPU"},
    SignalWord{SIGXFSZ, "SIGXFSZ"}, SignalWord{SIGVTALRM, "SIGVTALRM"},
    SignalWord{SIGPROF, "SIGPROF"}, SignalWord{SIGWINCH, "SIGWINCH"},
    SignalWord{SIGIO, "SIGIO"},     SignalWord{SIGPWR, "SIGPWR"},
    SignalWord{SIGSYS, "SIGSYS"},
};

}  // namespace

ExitStatus exit_status_from_siginfo(int code, int status) {
  CHECK(code == CLD_EXITED || code == CLD_KILLED || code == CLD_DUMPED);
  if (code == CLD_EXITED) return ExitStatus::exited(status);
  return ExitStatus::signaled(status, code == CLD_DUMPED);
}

std::string describe(const ExitStatus& status) {
  if (status.kind == ExitStatus::Kind::exited) return fmt::format("exited with {}", status.value);
  return fmt::format("killed by {}{}", signal_name(status.value),
                     status.core_dumped ? " (core dumped)" : "");
}

std::string signal_name(int signal) {
  const auto word = std::ranges::find(kSignalWords, signal, &SignalWord::number);
  if (word != kSignalWords.end()) return word->name;
  // glibc keeps the first real-time signals for itself, so SIGRTMIN is known only at run time.
  const int first = SIGRTMIN;
  if (signal == first) return "SIGRTMIN";
  if (signal > first && signal <= SIGRTMAX) return fmt::format("SIGRTMIN+{}", signal - first);
  return fmt::format("signal {}", signal);
}

}  // namespace muster
