#include "rendezvous/ring/memory_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace muster::ring {
namespace {

tl::unexpected<Error> no_memory(size_t bytes, const std::string& why) {
  return fail(ExitCode::environment,
              fmt::format("cannot make {} bytes of shared memory (memfd): {}", bytes, why));
}

}  // namespace

Result<UniqueFd> make_memory_file(const char* name, size_t bytes) {
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

}  // namespace muster::ring
