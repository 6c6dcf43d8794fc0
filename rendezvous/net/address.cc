#include "rendezvous/net/address.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

std::optional<IpAddress> parse_v6(std::string_view text) {
  uint32_t scope = 0;
  if (const size_t percent = text.find('%'); percent != std::string_view::npos) {
    const std::optional<uint32_t> number = whole_number<uint32_t>(text.substr(percent + 1));
    if (!number) return std::nullopt;
    scope = *number;
    text = text.substr(0, percent);
  }
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET6, std::string(text).c_str(), bytes.data()) != 1) return std::nullopt;
  return IpAddress::v6(bytes, scope);
}

bool is_v4_mapped(const std::array<uint8_t, 16>& bytes) {
  const std::array<uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(prefix.begin(), prefix.end(), bytes.begin());
}

}  // namespace

IpAddress IpAddress::v4(std::array<uint8_t, 4> bytes) {
  IpAddress address;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  return address;
}

IpAddress IpAddress::v6(const std::array<uint8_t, 16>& bytes, uint32_t scope) {
  if (is_v4_mapped(bytes)) return v4({bytes[12], bytes[13], bytes[14], bytes[15]});
  IpAddress address;
  address.is_v6_ = true;
  address.bytes_ = bytes;
  address.scope_ = scope;
  return address;
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  // inet_pton() stops at a NUL, but a string_view may contain one.
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  if (text.starts_with('[') && text.ends_with(']'))
    return parse_v6(text.substr(1, text.size() - 2));
  if (text.find(':') != std::string_view::npos) return parse_v6(text);
  std::array<uint8_t, 4> bytes{};
  if (inet_pton(AF_INET, std::string(text).c_str(), bytes.data()) != 1) return std::nullopt;
  return v4(bytes);
}

bool IpAddress::is_loopback() const {
  return is_v6_ ? *this == loopback_v6() : bytes_[0] == 127;
}

bool IpAddress::is_link_local() const {
  if (is_v6_) return bytes_[0] == 0xfe && (bytes_[1] & 0xc0) == 0x80;
  return bytes_[0] == 169 && bytes_[1] == 254;
}

std::string IpAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(is_v6_ ? AF_INET6 : AF_INET, bytes_.data(), text, sizeof text);
  return scope_ != 0 ? fmt::format("{}%{}", text, scope_) : std::string(text);
}

Network::Network(const IpAddress& address, unsigned prefix) : prefix_(prefix) {
  CHECK(prefix <= (address.is_v6() ? 128u : 32u));
  std::array<uint8_t, 16> bytes = address.bytes();
  for (unsigned bit = prefix; bit < 128; ++bit)
    bytes[bit / 8] &= static_cast<uint8_t>(~(0x80u >> (bit % 8)));
  // Masking only clears bits, so no IPv6 address becomes v4-mapped.
  address_ = address.is_v6() ? IpAddress::v6(bytes)
                             : IpAddress::v4({bytes[0], bytes[1], bytes[2], bytes[3]});
}

Network::Network(const IpAddress& address) : Network(address, address.is_v6() ? 128 : 32) {}

std::optional<Network> Network::parse(std::string_view text) {
  const size_t slash = text.find('/');
  const std::optional<IpAddress> address = IpAddress::parse(text.substr(0, slash));
  if (!address) return std::nullopt;
  if (slash == std::string_view::npos) return Network(*address);
  const std::optional<unsigned> prefix = whole_number<unsigned>(text.substr(slash + 1));
  if (!prefix || *prefix > (address->is_v6() ? 128u : 32u)) return std::nullopt;
  return Network(*address, *prefix);
}

bool Network::contains(const IpAddress& address) const {
  return address.is_v6() == address_.is_v6() && Network(address, prefix_).address_ == address_;
}

std::string Network::to_string() const {
  return fmt::format("{}/{}", address_.to_string(), prefix_);
}

std::optional<SocketAddress> SocketAddress::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view host = text.substr(0, colon);
  // Without brackets, the last group of an IPv6 address would be taken for a port.
  if (host.find(':') != std::string_view::npos && !host.starts_with('[')) return std::nullopt;
  const std::optional<IpAddress> ip = IpAddress::parse(host);
  const std::optional<uint16_t> port = whole_number<uint16_t>(text.substr(colon + 1));
  if (!ip || !port) return std::nullopt;
  return SocketAddress{*ip, *port};
}

std::optional<SocketAddress> SocketAddress::from_sockaddr(const sockaddr* raw) {
  if (raw == nullptr) return std::nullopt;
  if (raw->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, raw, sizeof in);
    std::array<uint8_t, 4> bytes{};
    std::memcpy(bytes.data(), &in.sin_addr, bytes.size());
    return SocketAddress{IpAddress::v4(bytes), ntohs(in.sin_port)};
  }
  if (raw->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in6{};
  std::memcpy(&in6, raw, sizeof in6);
  std::array<uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), &in6.sin6_addr, bytes.size());
  return SocketAddress{IpAddress::v6(bytes, in6.sin6_scope_id), ntohs(in6.sin6_port)};
}

socklen_t SocketAddress::to_sockaddr(sockaddr_storage& raw) const {
  raw = {};
  if (!ip.is_v6()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, ip.bytes().data(), 4);
    std::memcpy(&raw, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  in6.sin6_scope_id = ip.scope();
  std::memcpy(&in6.sin6_addr, ip.bytes().data(), 16);
  std::memcpy(&raw, &in6, sizeof in6);
  return sizeof in6;
}

std::string SocketAddress::to_string() const {
  return ip.is_v6() ? fmt::format("[{}]:{}", ip.to_string(), port)
                    : fmt::format("{}:{}", ip.to_string(), port);
}

std::vector<SocketAddress> interleave_families(const std::vector<SocketAddress>& addresses) {
  std::vector<SocketAddress> first;
  std::vector<SocketAddress> other;
  for (const SocketAddress& address : addresses) {
    auto& family = address.ip.is_v6() == addresses.front().ip.is_v6() ? first : other;
    if (std::find(family.begin(), family.end(), address) == family.end()) family.push_back(address);
  }
  std::vector<SocketAddress> order;
  for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    if (i < first.size()) order.push_back(first[i]);
    if (i < other.size()) order.push_back(other[i]);
  }
  return order;
}

}  // namespace muster
