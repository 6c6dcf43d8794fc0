// The recorders of programs that do not record themselves, as files that this binary brings along
// and writes for a job to a folder: Python's hook (worker_lib/recorder/python), a folder that
// workers get before their PYTHONPATH, and NCCL's profiler plugin (worker_lib/recorder/
// nccl_profiler). A binary that was built without Python's headers has no hook. Wait for the file
// system, so not on the control loop.
#pragma once

#include <string>

#include "rendezvous/base/error.h"

namespace muster {

struct WorkerHooks {
  bool python = false;
  bool nccl = false;

  friend bool operator==(const WorkerHooks&, const WorkerHooks&) = default;
};
// Those that this binary has.
WorkerHooks built_in_hooks();

// Makes `folder`, for the user alone, with what is `wanted`. Fails with ExitCode::environment, and
// leaves nothing: no space, or a file system that allows no programs (noexec), where neither could
// be loaded.
Result<void> write_hooks(const std::string& folder, const WorkerHooks& wanted);

// Also what Python has left beside them.
void remove_hooks(const std::string& folder);

std::string nccl_plugin_in(const std::string& folder);

}  // namespace muster
