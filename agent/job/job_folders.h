// Where a job's files go on this node: AgentLoop owns it, and its parts look at it when they write.
// Control loop only.
#pragma once

#include <string>

#include "agent/output/output.h"

namespace muster {

struct JobFolders {
  std::string cwd;
  std::string temp_dir;  // As Python's tempfile chooses it.
  RunFolders run = {};   // Once they are open.

  // The run folder, unless the user asked for no logs.
  std::string logs() const { return run.temporary ? std::string() : run.run_dir; }
};

}  // namespace muster
