// Shared memory as an unnamed file (memfd_create(2)). Its size is sealed, so no process can turn
// another one's access to its mapping into a SIGBUS.
#pragma once

#include <cstddef>

#include <fcntl.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::ring {

// The seals of every memory file: no process can change its size or its seals.
inline constexpr int kMemoryFileSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Makes a file of zeroes with kMemoryFileSeals, close-on-exec. `name` shows in /proc. Fails with
// ExitCode::environment, also above the limit on file sizes (ulimit -f), at which the kernel would
// end the process by SIGXFSZ.
Result<UniqueFd> make_memory_file(const char* name, size_t bytes);

}  // namespace muster::ring
