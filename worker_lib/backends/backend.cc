#include "worker_lib/backends/backend.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "rendezvous/base/error.h"

namespace muster::worker {

Outcome<std::shared_ptr<WorkState>> GroupBackend::start(const Operation&, Deadline) {
  CHECK(!is_asynchronous());
  return failed(ErrorCode::backend, "this backend cannot start operations on a stream");
}

Outcome<SharedBlock> GroupBackend::allocate_shared(size_t bytes, Deadline) {
  if (bytes == 0) return SharedBlock{};
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return failed(ErrorCode::system,
                  fmt::format("mmap of {} bytes failed: {}", bytes, std::strerror(errno)));
  }
  return SharedBlock{std::shared_ptr<void>(data, [bytes](void* p) { ::munmap(p, bytes); }), data};
}

}  // namespace muster::worker
