#include "launcher/values/signal_names.h"

#include <csignal>

#include "agent/process/exit_status.h"

namespace muster {

std::optional<int> signal_number(std::string_view name) {
  if (name == "SIGIOT") return SIGABRT;
  if (name == "SIGCLD") return SIGCHLD;
  if (name == "SIGPOLL") return SIGIO;
  if (name == "SIGRTMAX") return SIGRTMAX;
  if (!name.starts_with("SIG")) return std::nullopt;  // As "signal 32", which has no name.
  for (int number = 1; number <= SIGRTMIN; ++number) {
    if (signal_name(number) == name) return number;
  }
  return std::nullopt;
}

}  // namespace muster
