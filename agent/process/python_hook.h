// The recorder of Python programs (worker_lib/recorder/python): files that this binary brings along
// and writes for a job to a folder, which workers get before their PYTHONPATH. A binary that was
// built without Python's headers has none. Wait for the file system, so not on the control loop.
#pragma once

#include <string>

#include "rendezvous/base/error.h"

namespace muster {

bool has_python_hook();

// Makes `folder`, for the user alone. Fails with ExitCode::environment, and leaves nothing: no
// space, or a file system that allows no programs (noexec), where Python could not load the module.
Result<void> write_python_hook(const std::string& folder);

// Also what Python has left beside them.
void remove_python_hook(const std::string& folder);

}  // namespace muster
