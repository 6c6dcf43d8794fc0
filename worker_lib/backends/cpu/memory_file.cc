#include "worker_lib/backends/cpu/memory_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::worker {

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_to_pages(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

Outcome<UniqueFd> make_memory_file(const char* name, size_t bytes) {
  Result<UniqueFd> made = ring::make_memory_file(name, bytes);
  if (!made) return failed(ErrorCode::system, std::move(made.error().message));
  return std::move(*made);
}

Outcome<std::byte*> map_memory_file(int fd, size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    return failed(ErrorCode::system, fmt::format("cannot map {} bytes of shared memory: {}", bytes,
                                                 std::strerror(errno)));
  }
  return static_cast<std::byte*>(at);
}

}  // namespace muster::worker
