// The address of a Unix socket in the abstract namespace (unix(7)): the name begins with a zero
// byte, belongs to the network namespace as a port does, and ends with its last socket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>

#include "rendezvous/base/error.h"

namespace muster {

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    CHECK(name.size() < sizeof raw.sun_path);
    raw.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), raw.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&raw); }

  sockaddr_un raw{};
  socklen_t size = 0;
};

}  // namespace muster
