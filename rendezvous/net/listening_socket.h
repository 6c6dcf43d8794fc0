// Binding the addresses that a listener wants, all on one port or none at all. Plain descriptors:
// what is done with them, and in which loop, is the caller's. The ports are taken, never probed and
// then hoped for.
#pragma once

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "rendezvous/net/address.h"

namespace muster {

struct ListenError {
  int error_number = 0;  // EADDRINUSE, EADDRNOTAVAIL, EACCES, ...
  SocketAddress address;
  std::string message;  // one line; who owns a taken port is for the caller to add
};

// Non-blocking, CLOEXEC, listening. The descriptor belongs to who gets this.
struct ListeningSocket {
  int fd = -1;
  SocketAddress address;  // with the port that the kernel gave
};

// An any-address of IPv6 takes IPv4 as well, and 0.0.0.0 stands in for it where the kernel has no
// IPv6. Addresses of a family that the kernel lacks are left out while another one is bound.
// REQUIRES: not empty. A port of 0 in the first one: a free port, and the same for the rest.
tl::expected<std::vector<ListeningSocket>, ListenError> listen_on(
    std::vector<SocketAddress> addresses);

}  // namespace muster
