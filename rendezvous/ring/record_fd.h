// Makes and maps rings. A worker finds its ring by MUSTER_RECORD_FD=<descriptor>:<nonce>. The
// descriptor is the only one above 2 that a worker inherits; its number is 100 or more, out of the
// way of programs that rely on small ones. The nonce detects another file under that number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/ring/ring_layout.h"

namespace muster::ring {

inline constexpr int kLowestRecordFd = 100;

struct RecordFd {
  int fd = -1;
  uint64_t nonce = 0;
  friend bool operator==(const RecordFd&, const RecordFd&) = default;
};
std::string to_text(const RecordFd& record_fd);  // "100:1f00c3a29b7e4d51"
std::optional<RecordFd> parse_record_fd(std::string_view text);

// Makes a ring of kRingBytes, of sealed size, with magic, version, size and nonce, close-on-exec,
// on a descriptor of at least kLowestRecordFd. Fails with ExitCode::environment: no memfd, no
// descriptor, a limit on file sizes (ulimit -f).
Result<UniqueFd> make_ring(uint64_t nonce);

// Maps it, shared. Returns nullptr and `why` if it is not such a ring: closed, another file,
// unsealed, another size, magic, version or nonce.
Ring* map_ring(const RecordFd& record_fd, bool writable, std::string& why);
void unmap_ring(Ring* ring);

}  // namespace muster::ring
