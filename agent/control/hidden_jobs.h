// The jobs on this machine that musterctl does not find in its folder (control_folder.h), and why
// not. Blocks on procfs and the folders.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agent/control/control_folder.h"

namespace muster {

struct HiddenJob {
  pid_t pid = 0;         // The front's.
  bool foreign = false;  // It belongs to another user.
  std::string why;       // With what to do.
};

// Those that are not in `listed`. With a `run_dir` only those that use the same: no other was asked
// for.
std::vector<HiddenJob> hidden_jobs(const ControlPlace& place, std::span<const JobEntry> listed);

}  // namespace muster
