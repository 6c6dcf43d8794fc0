// Memory that processes share, as a file without a name (memfd_create(2)). Its size is sealed, so
// that no process can make another one's access to its mapping a SIGBUS.
#pragma once

#include <cstddef>

#include <fcntl.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::ring {

// The seals of every memory file: no process can change its size or its seals.
inline constexpr int kMemoryFileSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A new file of zeroes with kMemoryFileSeals, close-on-exec. `name` shows in /proc. Fails with
// ExitCode::environment if the kernel refuses, or if it would exceed the limit on file sizes
// (ulimit -f): beyond that the kernel sends SIGXFSZ, which ends the process.
Result<UniqueFd> make_memory_file(const char* name, size_t bytes);

}  // namespace muster::ring
