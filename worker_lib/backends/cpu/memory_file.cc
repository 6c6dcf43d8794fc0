#include "worker_lib/backends/cpu/memory_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace muster::worker {
namespace {

tl::unexpected<Failure> no_memory(size_t bytes, const std::string& why) {
  return failed(ErrorCode::system,
                fmt::format("cannot make {} bytes of shared memory (memfd): {}", bytes, why));
}

}  // namespace

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_to_pages(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

Outcome<UniqueFd> make_memory_file(const char* name, size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    return no_memory(bytes, fmt::format("files may have no more than {} bytes; raise the limit "
                                        "(ulimit -f, RLIMIT_FSIZE)",
                                        limit.rlim_cur));
  }
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kMemoryFileSeals) != 0) {
    return no_memory(bytes, std::strerror(errno));
  }
  return fd;
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
