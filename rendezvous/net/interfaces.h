// Queries the kernel about this machine's interfaces, routes and sockets. Sends no packet. Nothing
// is cached, because interfaces come and go; a call costs tens of microseconds.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/interface_choice.h"

namespace muster {

// Returns true if loopback was down, as in a new network namespace, and is up now. Fails if it
// stays down: then no packet from this machine to itself arrives, whatever its address.
Result<bool> bring_loopback_up();

// Returns them in the kernel's order; empty if getifaddrs(3) fails.
std::vector<Interface> read_interfaces();
std::vector<IpAddress> read_own_addresses();
// Returns those at which other machines may reach this one: of candidates (is_candidate()) only.
std::vector<IpAddress> read_peer_addresses();

// True for all of 127.0.0.0/8, and for ::1 only if IPv6 is enabled in the kernel.
bool is_own_address(const IpAddress& address);
bool is_own_address(const IpAddress& address, const std::vector<IpAddress>& own);

// The two ends of a socket; the local end of a connection reached the peer, so it is the address to
// advertise. Return 0.0.0.0:0 for other families and once the connection is gone.
SocketAddress local_address_of(int fd);
SocketAddress remote_address_of(int fd);

// Returns the source address that the kernel would choose for `peer`. Fails without a route.
Result<IpAddress> source_towards(const SocketAddress& peer);

// Returns the address to advertise for --iface NAME: the first that is not link-local, preferably
// of the family of `like`.
Result<IpAddress> address_of_interface(const std::string& name, const IpAddress& like);

}  // namespace muster
