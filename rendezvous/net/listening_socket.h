// Binds the addresses that a listener wants, all on one port or none at all. Returns descriptors:
// the caller decides how to use them, and in which loop. Each port is bound right
// away, never just probed and assumed to stay free.
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"

namespace muster {

struct ListenError {
  int error_number = 0;  // EADDRINUSE, EADDRNOTAVAIL, EACCES, ...
  SocketAddress address;
  std::string message;  // one line; the caller may add which process owns a taken port
};

// Non-blocking, CLOEXEC, listening.
struct ListeningSocket {
  UniqueFd fd;
  SocketAddress address;  // with the port that the kernel assigned
};

// The IPv6 any-address accepts IPv4 as well; 0.0.0.0 replaces it if the kernel has no IPv6.
// Addresses of a family that the kernel lacks are skipped as long as another one can be bound. Port
// 0 in the first address: any free port, the same for all. REQUIRES: not empty.
tl::expected<std::vector<ListeningSocket>, ListenError> listen_on(
    std::vector<SocketAddress> addresses);

}  // namespace muster
