// Memory that the ranks of a node share: sealed memory files (rendezvous/ring/memory_file.h), with
// errors as worker_lib Failures, and rounding to pages.
#pragma once

#include <cstddef>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/ring/memory_file.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using ring::kMemoryFileSeals;

size_t page_bytes();
size_t round_to_pages(size_t bytes);

// Fails with ErrorCode::system.
Outcome<UniqueFd> make_memory_file(const char* name, size_t bytes);

// Maps the file for reading and writing; munmap() removes it. Fails with ErrorCode::system.
Outcome<std::byte*> map_memory_file(int fd, size_t bytes);

}  // namespace muster::worker
