// The IP address that a process gives to other nodes to be reached at. Reads interfaces, routes and
// names; blocking.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// The source address that the kernel uses towards `store_host`, or the address of `interface` if
// one is named ("eth0", or the first of several, with commas). If the host name means loopback here
// only (Debian's 127.0.1.1 for the own host name), it is that of the first interface that could
// reach others; loopback itself is returned if it was asked for, or if there is nothing else. Fails
// with environment if the interface does not exist.
Outcome<std::string> own_address(const std::string& store_host, uint16_t port,
                                 const std::string& interface);

// Where rank 0 listens for MASTER_ADDR: on its addresses alone if they are this machine's, else on
// all (the name is that of a service in front of us, or means something else to the others).
std::vector<SocketAddress> listening_addresses(const std::string& host, uint16_t port);

// All addresses at which others might reach this machine, the best first, without loopback.
std::vector<std::string> reachable_addresses(const std::string& interface);

}  // namespace muster::worker
