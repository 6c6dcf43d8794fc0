#include "rendezvous/base/signal_name.h"

#include <csignal>
#include <iterator>

#include <fmt/format.h>

namespace muster {
namespace {

// By number, which is the same on x86, ARM, POWER and RISC-V.
constexpr const char* kSignalNames[] = {
    nullptr, "HUP",  "INT",  "QUIT", "ILL",    "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
    "SEGV",  "USR2", "PIPE", "ALRM", "TERM",   "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
    "TTOU",  "URG",  "XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "IO",   "PWR",  "SYS"};
static_assert(std::size(kSignalNames) == SIGSYS + 1 && SIGUSR1 == 10 && SIGCHLD == 17);

}  // namespace

std::string signal_name(int signal) {
  if (signal > 0 && signal <= SIGSYS) return fmt::format("SIG{}", kSignalNames[signal]);
  // glibc keeps the first real-time signals for itself, so SIGRTMIN is known only at run time.
  const int first = SIGRTMIN;
  if (signal == first) return "SIGRTMIN";
  if (signal > first && signal <= SIGRTMAX) return fmt::format("SIGRTMIN+{}", signal - first);
  return fmt::format("signal {}", signal);
}

}  // namespace muster
