#include "rendezvous/net/interfaces.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

Interface& entry_for(std::vector<Interface>& interfaces, const ifaddrs& raw) {
  for (Interface& known : interfaces) {
    if (known.name == raw.ifa_name) return known;
  }
  Interface added;
  added.name = raw.ifa_name;
  added.index = if_nametoindex(raw.ifa_name);
  added.up = (raw.ifa_flags & IFF_UP) != 0 && (raw.ifa_flags & IFF_RUNNING) != 0;
  added.loopback = (raw.ifa_flags & IFF_LOOPBACK) != 0;
  return interfaces.emplace_back(std::move(added));
}

SocketAddress end_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage raw{};
  socklen_t length = sizeof raw;
  auto* const end = reinterpret_cast<sockaddr*>(&raw);
  if (ask(fd, end, &length) != 0) return {};
  return SocketAddress::from_sockaddr(end).value_or(SocketAddress{});
}

Result<IpAddress> no_route(const SocketAddress& peer, int error) {
  return fail(ExitCode::rendezvous,
              fmt::format("no route from this machine to {}: {}; check its address and the routes",
                          peer.to_string(), std::strerror(error)));
}

}  // namespace

Result<bool> bring_loopback_up() {
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (!fd || ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;  // E.g. in a sandbox.
  if ((request.ifr_flags & IFF_UP) != 0) return false;
  request.ifr_flags |= IFF_UP;
  if (ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0) return true;
  return fail(
      ExitCode::environment,
      fmt::format("the loopback interface is down here, and muster may not bring it up ({}): "
                  "run `ip link set lo up` as root, or choose another sandbox",
                  std::strerror(errno)));
}

std::vector<Interface> read_interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(raw, &freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* one = raw; one != nullptr; one = one->ifa_next) {
    Interface& entry = entry_for(interfaces, *one);
    if (const auto address = SocketAddress::from_sockaddr(one->ifa_addr))
      entry.addresses.push_back(address->ip);
  }
  return interfaces;
}

std::vector<IpAddress> read_own_addresses() {
  std::vector<IpAddress> own;
  for (const Interface& interface : read_interfaces())
    own.insert(own.end(), interface.addresses.begin(), interface.addresses.end());
  return own;
}

std::vector<IpAddress> read_peer_addresses() {
  std::vector<IpAddress> peer;
  for (const Interface& interface : read_interfaces()) {
    if (!is_candidate(interface)) continue;
    for (const IpAddress& address : interface.addresses) {
      if (!address.is_link_local() && !address.is_loopback()) peer.push_back(address);
    }
  }
  return peer;
}

bool is_own_address(const IpAddress& address) {
  return is_own_address(address, read_own_addresses());
}

bool is_own_address(const IpAddress& address, const std::vector<IpAddress>& own) {
  if (address.is_loopback() && !address.is_v6()) return true;
  return std::find(own.begin(), own.end(), address) != own.end();
}

SocketAddress local_address_of(int fd) {
  return end_of(fd, getsockname);
}

SocketAddress remote_address_of(int fd) {
  return end_of(fd, getpeername);
}

Result<IpAddress> source_towards(const SocketAddress& peer) {
  sockaddr_storage raw{};
  const socklen_t length = peer.to_sockaddr(raw);
  const UniqueFd fd(socket(raw.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // connect(2) on a UDP socket only looks up the route.
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&raw), length) != 0)
    return no_route(peer, errno);
  return local_address_of(fd.get()).ip;
}

Result<IpAddress> address_of_interface(const std::string& name, const IpAddress& like) {
  std::optional<IpAddress> best;
  bool exists = false;
  for (const Interface& interface : read_interfaces()) {
    if (interface.name != name) continue;
    exists = true;
    for (const IpAddress& address : interface.addresses) {
      if (address.is_link_local()) continue;
      if (!best || (address.is_v6() == like.is_v6() && best->is_v6() != like.is_v6()))
        best = address;
    }
  }
  if (best) return *best;
  return fail(ExitCode::usage, exists
                                   ? fmt::format("--iface {}: the interface has no address", name)
                                   : fmt::format("--iface {}: there is no such interface; "
                                                 "`ip address` lists them",
                                                 name));
}

}  // namespace muster
