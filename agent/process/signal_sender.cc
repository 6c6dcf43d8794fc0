#include "agent/process/signal_sender.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <signal.h>

namespace muster {

bool is_from_engine(const signalfd_siginfo& info) {
  if (info.ssi_code != SI_USER) return false;
  std::ifstream file(fmt::format("/proc/{}/comm", info.ssi_pid));
  std::string name;
  if (std::getline(file, name)) return name.starts_with("slurmstepd");
  // The daemon outlives its signal; a root's kill(1) may be gone by now, and is no engine.
  const bool is_hidden = kill(static_cast<pid_t>(info.ssi_pid), 0) != 0 && errno == EPERM;
  return is_hidden && info.ssi_uid == 0 && std::getenv("SLURM_JOB_ID") != nullptr;
}

}  // namespace muster
