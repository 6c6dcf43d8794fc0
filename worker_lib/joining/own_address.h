// The IP address at which other nodes reach a process. Reads interfaces, routes and names;
// blocking.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// Returns the kernel's source address towards `store_host`, or the address of `interface` if named
// ("eth0", or the first of a comma-separated list). If the host name means loopback here only
// (Debian's 127.0.1.1 for the own name), returns that of the first interface that could reach
// others; loopback if requested, or as a last resort. Fails with environment if the interface does
// not exist.
Outcome<std::string> own_address(const std::string& store_host, uint16_t port,
                                 const std::string& interface);

// Returns the addresses on which rank 0 listens for MASTER_ADDR: those of the name if they are this
// machine's, else all (the name is a service in front of it, or resolves differently elsewhere).
std::vector<SocketAddress> listening_addresses(const std::string& host, uint16_t port);

// Returns the addresses at which others might reach this machine, best first, without loopback.
std::vector<std::string> reachable_addresses(const std::string& interface);

}  // namespace muster::worker
