// The folders of a job's files on this node. AgentLoop owns them, and its parts read them when they
// write. Control loop only.
#pragma once

#include <string>

#include "agent/output/output.h"

namespace muster {

struct JobFolders {
  std::string cwd;
  std::string temp_dir;  // Chosen like Python's tempfile.
  RunFolders run = {};   // Set once they are open.

  // The run folder, unless the user asked for no logs.
  std::string logs() const { return run.temporary ? std::string() : run.run_dir; }
};

}  // namespace muster
