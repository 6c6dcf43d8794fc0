#include "agent/process/signal_sender.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace muster {

bool is_from_engine(const signalfd_siginfo& info) {
  if (info.ssi_code != SI_USER) return false;
  std::ifstream file(fmt::format("/proc/{}/comm", info.ssi_pid));
  std::string name;
  if (std::getline(file, name)) return name.starts_with("slurmstepd");
  return info.ssi_uid == 0 && std::getenv("SLURM_JOB_ID") != nullptr;
}

}  // namespace muster
