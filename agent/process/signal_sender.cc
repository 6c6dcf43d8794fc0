#include "agent/process/signal_sender.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace muster {

Sender sender_of(const signalfd_siginfo& info) {
  const auto pid = static_cast<pid_t>(info.ssi_pid);
  if (info.ssi_code > 0) return Sender::kernel;
  if (info.ssi_code != SI_USER) return Sender::process;
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  if (std::getline(file, name)) {
    if (name.starts_with("slurmstepd")) return Sender::engine;
    return name == "systemd" ? Sender::manager : Sender::process;
  }
  // The daemon outlives its signal; a root's kill(1) may be gone by now, and is no engine.
  const bool is_hidden = kill(pid, 0) != 0 && errno == EPERM;
  const bool is_daemon = is_hidden && info.ssi_uid == 0 && std::getenv("SLURM_JOB_ID") != nullptr;
  return is_daemon ? Sender::engine : Sender::process;
}

}  // namespace muster
