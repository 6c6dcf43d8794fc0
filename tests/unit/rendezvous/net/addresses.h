// Parses the addresses that tests write as text. Invalid text throws std::bad_optional_access,
// which fails the test.
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
