// Addresses as values: an IP address, a CIDR network, an address with a port, and the order in
// which to try several. Pure: nothing here calls the kernel or a resolver, so a scope is a number
// (resolve.h turns "%eth0" into one). A v4-mapped IPv6 address (::ffff:10.0.0.1, an IPv4 peer of an
// IPv6 socket) always becomes IPv4, so filters and comparisons never see one.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace muster {

class IpAddress {
 public:
  IpAddress() = default;  // 0.0.0.0
  static IpAddress v4(std::array<uint8_t, 4> bytes);
  static IpAddress v6(const std::array<uint8_t, 16>& bytes, uint32_t scope = 0);
  static IpAddress any_v4() { return IpAddress(); }
  static IpAddress any_v6() { return v6({}); }
  static IpAddress loopback_v4() { return v4({127, 0, 0, 1}); }
  static IpAddress loopback_v6() { return v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}); }

  // Accepts "10.0.0.1", "fd00::1", "[fd00::1]", "fe80::1%2"; nullopt for all else, even names.
  static std::optional<IpAddress> parse(std::string_view text);

  bool is_v6() const { return is_v6_; }
  uint32_t scope() const { return scope_; }
  // An IPv4 address is in the first 4; the others are zero.
  const std::array<uint8_t, 16>& bytes() const { return bytes_; }
  bool is_any() const { return *this == any_v4() || *this == any_v6(); }  // 0.0.0.0 or ::
  bool is_loopback() const;                                               // 127.0.0.0/8 or ::1
  bool is_link_local() const;  // 169.254.0.0/16 or fe80::/10

  std::string to_string() const;  // "10.0.0.1", "fe80::1%2"; parse() accepts it

  // IPv4 before IPv6, then by number, then by scope.
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  bool is_v6_ = false;
  std::array<uint8_t, 16> bytes_{};
  uint32_t scope_ = 0;
};

// A CIDR block. Bits after the prefix are zero, so equal networks compare equal.
class Network {
 public:
  // REQUIRES: prefix <= 32 for IPv4, <= 128 for IPv6.
  Network(const IpAddress& address, unsigned prefix);
  explicit Network(const IpAddress& address);  // the network of this one address

  // Accepts "10.0.0.0/8", "fd00::/8", or a bare address; nullopt for all else.
  static std::optional<Network> parse(std::string_view text);

  // Ignores the scope: fe80::1%2 is in fe80::/10. A network never contains the other family.
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

  // Accepts "10.0.0.1:29500", "[fe80::1%2]:29500"; nullopt for all else.
  static std::optional<SocketAddress> parse(std::string_view text);
  // Returns nullopt for null and for a family other than IPv4 and IPv6.
  static std::optional<SocketAddress> from_sockaddr(const sockaddr* raw);
  // Fills `raw` and returns its length.
  socklen_t to_sockaddr(sockaddr_storage& raw) const;

  std::string to_string() const;

  friend auto operator<=>(const SocketAddress&, const SocketAddress&) = default;
};

// Returns the order in which to try `addresses`, given in the resolver's order (RFC 6724): families
// alternate, beginning with the first address (RFC 8305, §4). Drops duplicates.
std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses);

}  // namespace muster
