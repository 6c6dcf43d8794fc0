// Binds the addresses of a listener, all on one port or none at all, and returns the descriptors.
// The port is bound right away, never just probed and assumed to stay free.
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
  std::string message;  // one line; callers may add which process owns a taken port
};

// Non-blocking, CLOEXEC, listening.
struct ListeningSocket {
  UniqueFd fd;
  SocketAddress address;  // with the port that the kernel assigned
};

// The IPv6 any-address also accepts IPv4; 0.0.0.0 replaces it if the kernel has no IPv6. Addresses
// of a family that the kernel lacks are skipped if another one can be bound. All get the port of
// the first address; 0: any free port. REQUIRES: not empty.
tl::expected<std::vector<ListeningSocket>, ListenError> listen_on(
    std::vector<SocketAddress> addresses);

}  // namespace muster
