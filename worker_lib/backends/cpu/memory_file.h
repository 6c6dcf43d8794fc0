// Memory that processes share, as a file without a name (memfd_create(2)), and the size of its
// pages.
#pragma once

#include <cstddef>

#include <fcntl.h>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// The unit in which the kernel maps memory.
size_t page_bytes();
size_t round_to_pages(size_t bytes);

// The seals of every memory file: no process can change its size or its seals.
inline constexpr int kMemoryFileSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A new file of zeroes with kMemoryFileSeals. `name` shows in /proc. Fails with ErrorCode::system
// if the kernel refuses, or if it would exceed the limit on file sizes (ulimit -f): beyond that the
// kernel sends SIGXFSZ, which ends the process.
Outcome<UniqueFd> make_memory_file(const char* name, size_t bytes);

// Maps it, for writing as well; munmap() removes the mapping. Fails with ErrorCode::system.
Outcome<std::byte*> map_memory_file(int fd, size_t bytes);

}  // namespace muster::worker
