// What the kernel knows about this machine's interfaces, routes and sockets. No packet is sent.
// Each call asks again, because interfaces come and go; it costs tens of microseconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/interface_choice.h"

namespace muster {

// Whether it was down, as in a new network namespace, and is up now. Fails where it stays down: no
// packet from this machine to itself arrives, whichever its address.
Result<bool> bring_loopback_up();

// In the kernel's order. Empty if getifaddrs(3) fails.
std::vector<Interface> read_interfaces();
std::vector<IpAddress> read_own_addresses();
// Those at which other machines may reach this one: of candidates (interface_choice.h) alone.
std::vector<IpAddress> read_peer_addresses();

// All of 127.0.0.0/8 is ours; ::1 only if IPv6 is enabled in the kernel.
bool is_own_address(const IpAddress& address);
bool is_own_address(const IpAddress& address, const std::vector<IpAddress>& own);

// The two ends of a socket. The local end of a connection is the address that reached the peer, and
// so the one to advertise to others. 0.0.0.0:0 for other families, and once the connection is gone.
SocketAddress local_address_of(int fd);
SocketAddress remote_address_of(int fd);

// The source address that the kernel would choose for a packet to `peer`. Fails without a route.
Result<IpAddress> source_towards(const SocketAddress& peer);

// The address to advertise for --iface NAME: one of the same family as `like` if there is one,
// otherwise the first that is not link-local.
Result<IpAddress> address_of_interface(const std::string& name, const IpAddress& like);

}  // namespace muster
