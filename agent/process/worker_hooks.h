// Recorders for programs that do not record themselves, embedded in this binary and written to a
// folder for each job: Python's hook (worker_lib/recorder/python), a folder put before the workers'
// PYTHONPATH, and NCCL's profiler plugin (worker_lib/recorder/nccl_profiler). A binary built
// without Python's headers has no Python hook. These functions wait for the file system: do not
// call them on the control loop.
#pragma once

#include <string>

#include "rendezvous/base/error.h"

namespace muster {

struct WorkerHooks {
  bool python = false;
  bool nccl = false;

  friend bool operator==(const WorkerHooks&, const WorkerHooks&) = default;
};
WorkerHooks built_in_hooks();

// Makes `folder`, readable by the user alone, with the `wanted` hooks. Fails with
// ExitCode::environment and leaves nothing behind if there is no space or the file system is
// mounted noexec, where no hook could be loaded.
Result<void> write_hooks(const std::string& folder, const WorkerHooks& wanted);

// Removes the folder, with what Python has left in it.
void remove_hooks(const std::string& folder);

std::string nccl_plugin_in(const std::string& folder);

}  // namespace muster
