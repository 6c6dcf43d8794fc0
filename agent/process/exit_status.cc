#include "agent/process/exit_status.h"

#include <csignal>

#include <fmt/format.h>
#include <sys/wait.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/signal_name.h"

namespace muster {

ExitStatus exit_status_from_siginfo(int code, int status) {
  CHECK(code == CLD_EXITED || code == CLD_KILLED || code == CLD_DUMPED);
  if (code == CLD_EXITED) return ExitStatus::exited(status);
  return ExitStatus::signaled(status, code == CLD_DUMPED);
}

ExitStatus exit_status_from_wait(int status) {
  if (!WIFSIGNALED(status)) return ExitStatus::exited(WEXITSTATUS(status));
  return ExitStatus::signaled(WTERMSIG(status), WCOREDUMP(status));
}

std::string describe(const ExitStatus& status) {
  if (status.kind == ExitStatus::Kind::exited) return fmt::format("exited with {}", status.value);
  return fmt::format("killed by {}{}", signal_name(status.value),
                     status.core_dumped ? " (core dumped)" : "");
}

}  // namespace muster
