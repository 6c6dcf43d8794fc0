// Memory that the ranks of a node share: sealed files (rendezvous/ring/memory_file.h) with the
// library's failures, and the size of its pages.
#pragma once

#include <cstddef>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/ring/memory_file.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using ring::kMemoryFileSeals;

// The unit in which the kernel maps memory.
size_t page_bytes();
size_t round_to_pages(size_t bytes);

// Fails with ErrorCode::system.
Outcome<UniqueFd> make_memory_file(const char* name, size_t bytes);

// Maps it, for writing as well; munmap() removes the mapping. Fails with ErrorCode::system.
Outcome<std::byte*> map_memory_file(int fd, size_t bytes);

}  // namespace muster::worker
