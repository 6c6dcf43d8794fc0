// Addresses as values: an IP address, a CIDR network, an address with a port, and the order in
// which to try several. Pure: nothing here asks the kernel or a resolver, so a scope is a number
// (resolve.h turns "%eth0" into one). An IPv4 address that came in through an IPv6 socket
// (::ffff:10.0.0.1) is the IPv4 address, everywhere: filters and comparisons never see the other
// spelling.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "rendezvous/base/error.h"

namespace muster {

class IpAddress {
 public:
  IpAddress() = default;  // 0.0.0.0
  static IpAddress v4(std::array<uint8_t, 4> bytes);
  static IpAddress v6(const std::array<uint8_t, 16>& bytes, uint32_t scope = 0);
  static IpAddress any_v4() { return IpAddress(); }
  static IpAddress any_v6() { return v6({}); }
  static IpAddress loopback_v4() { return v4({127, 0, 0, 1}); }
  static IpAddress loopback_v6();

  // "10.0.0.1", "fd00::1", "[fd00::1]", "fe80::1%2". Nothing for anything else, names included.
  static std::optional<IpAddress> parse(std::string_view text);

  bool is_v6() const { return is_v6_; }
  uint32_t scope() const { return scope_; }
  // The first 4 of them for IPv4; the others are zero.
  const std::array<uint8_t, 16>& bytes() const { return bytes_; }
  bool is_any() const;         // 0.0.0.0 or ::
  bool is_loopback() const;    // 127.0.0.0/8 or ::1
  bool is_link_local() const;  // 169.254.0.0/16 or fe80::/10

  std::string to_string() const;  // "10.0.0.1", "fe80::1%2"; parse() takes it back

  // IPv4 first, then by number; the scope last.
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  bool is_v6_ = false;
  std::array<uint8_t, 16> bytes_{};
  uint32_t scope_ = 0;
};

// A CIDR block. Bits behind the prefix are zero, so equal networks compare equal.
class Network {
 public:
  // REQUIRES: prefix <= 32 for IPv4, <= 128 for IPv6.
  Network(const IpAddress& address, unsigned prefix);
  explicit Network(const IpAddress& address);  // that one address

  // "10.0.0.0/8", "fd00::/8", or a bare address for itself alone.
  static Result<Network> parse(std::string_view text);

  // The scope is not looked at: fe80::1%2 is in fe80::/10. A family never contains the other.
  bool contains(const IpAddress& address) const;
  std::string to_string() const;

  friend bool operator==(const Network&, const Network&) = default;

 private:
  IpAddress address_;
  unsigned prefix_;
};

struct SocketAddress {
  IpAddress ip;
  uint16_t port = 0;

  // "10.0.0.1:29500", "[fe80::1%2]:29500". Nothing for anything else.
  static std::optional<SocketAddress> parse(std::string_view text);
  // Nothing for a family that is neither IPv4 nor IPv6. v4-mapped addresses come out as IPv4.
  static std::optional<SocketAddress> from_sockaddr(const sockaddr_storage& raw);
  // Fills `raw` and returns the length that the socket calls want.
  socklen_t to_sockaddr(sockaddr_storage& raw) const;

  std::string to_string() const;

  friend auto operator<=>(const SocketAddress&, const SocketAddress&) = default;
};

// The order in which to try `addresses`, as a resolver gave them (best first, RFC 6724): families
// alternate, beginning with that of the first one, and keep their order within (RFC 8305, §4).
// Addresses that come twice are tried once.
std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses);

}  // namespace muster
