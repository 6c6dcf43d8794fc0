#include "rendezvous/ring/record_fd.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/text.h"
#include "rendezvous/ring/memory_file.h"

namespace muster::ring {
namespace {

// Returns "" for a sealed memory file of kRingBytes, which can be mapped and read without a signal.
std::string defect_of_file(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0)
    return errno == EBADF ? "the program has closed it" : std::strerror(errno);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kMemoryFileSeals) != kMemoryFileSeals)
    return "it is no sealed memory file; has the program reused the number?";
  if (static_cast<size_t>(info.st_size) != kRingBytes)
    return fmt::format("it has {} bytes instead of {}", info.st_size, kRingBytes);
  return {};
}

// Returns "" if it is this ring.
std::string defect_of_head(const Head& head, uint64_t nonce) {
  if (head.magic.load(kRelaxed) != kMagic) return "it is not a ring of records";
  const uint64_t version = head.version.load(kRelaxed);
  if (version != kVersion || head.bytes.load(kRelaxed) != kRingBytes) {
    return fmt::format(
        "its layout has version {}, not {}; use one release of muster for the "
        "launcher and the program",
        version, kVersion);
  }
  if (head.nonce.load(kRelaxed) != nonce) return "its nonce is another one";
  return {};
}

// EINVAL of F_DUPFD_CLOEXEC means that the limit allows no such number (fcntl(2)).
std::string why_no_descriptor(int error) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format(
      "cannot make a ring of records: {} descriptor from number {} on, and the limit on open files "
      "(RLIMIT_NOFILE) is {} (hard limit {}); raise it, with `ulimit -n 1024` say",
      error == EINVAL ? "it needs a" : "there is no free", kLowestRecordFd, limit.rlim_cur,
      limit.rlim_max);
}

}  // namespace

std::string to_text(const RecordFd& record_fd) {
  return fmt::format("{}:{:016x}", record_fd.fd, record_fd.nonce);
}

std::optional<RecordFd> parse_record_fd(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto fd = whole_number<int>(text.substr(0, colon));
  const auto nonce = whole_number<uint64_t>(text.substr(colon + 1), 16);
  if (!fd || *fd < 0 || !nonce) return std::nullopt;
  return RecordFd{*fd, *nonce};
}

Result<UniqueFd> make_ring(uint64_t nonce) {
  const Result<UniqueFd> made = make_memory_file("muster-ring", kRingBytes);
  if (!made) return tl::unexpected(made.error());
  static_assert(offsetof(Head, nonce) == 3 * sizeof(Word));
  const std::array<uint64_t, 4> head{kMagic, kVersion, kRingBytes, nonce};
  UniqueFd fd(fcntl(made->get(), F_DUPFD_CLOEXEC, kLowestRecordFd));
  if (!fd) return fail(ExitCode::environment, why_no_descriptor(errno));
  if (pwrite(fd.get(), head.data(), sizeof head, 0) != sizeof head) {
    return fail(ExitCode::environment,
                fmt::format("cannot write a ring of records: {}", std::strerror(errno)));
  }
  return fd;
}

Ring* map_ring(const RecordFd& record_fd, bool writable, std::string& why) {
  const auto refuse = [&](const std::string& defect) {
    why = fmt::format("descriptor {} cannot be used for records: {}", record_fd.fd, defect);
    return nullptr;
  };
  const std::string defect = defect_of_file(record_fd.fd);
  if (!defect.empty()) return refuse(defect);
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const at = mmap(nullptr, kRingBytes, protection, MAP_SHARED, record_fd.fd, 0);
  if (at == MAP_FAILED) return refuse(fmt::format("cannot map it: {}", std::strerror(errno)));
  Ring* const ring = static_cast<Ring*>(at);
  const std::string defect_inside = defect_of_head(ring->head, record_fd.nonce);
  if (defect_inside.empty()) return ring;
  unmap_ring(ring);
  return refuse(defect_inside);
}

void unmap_ring(Ring* ring) {
  munmap(ring, kRingBytes);
}

}  // namespace muster::ring
