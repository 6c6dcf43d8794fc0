// Memory that processes share, as a file without a name (memfd_create(2)), and the pages that it
// consists of.
#pragma once

#include <cstddef>

#include <fcntl.h>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// What the kernel maps and aligns by.
size_t page_bytes();
size_t round_to_pages(size_t bytes);

// What every memory file is sealed with: nobody can change its size, or unseal it.
inline constexpr int kMemoryFileSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A new one of zeroes, sealed: nobody can change its size. `name` shows in /proc. Fails with
// ErrorCode::system where the kernel refuses, or the limit of a file's size (ulimit -f) would:
// beyond that the kernel sends SIGXFSZ, which ends the process.
Outcome<UniqueFd> make_memory_file(const char* name, size_t bytes);

}  // namespace muster::worker
