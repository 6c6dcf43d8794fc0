// Addresses as tests write them: text that is known to be one. What is none throws, and the test
// fails.
#pragma once

#include <string_view>

#include "rendezvous/net/address.h"

namespace muster {

inline IpAddress ip(std::string_view text) {
  return IpAddress::parse(text).value();
}

inline SocketAddress socket_at(std::string_view text) {
  return SocketAddress::parse(text).value();
}

}  // namespace muster
