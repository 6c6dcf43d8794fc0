// The IP address at which a process tells other nodes to reach it. Reads of interfaces, routes and
// names; blocking.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// What the kernel puts on packets to `store_host`, or the address of `interface` where one is named
// ("eth0", or the first of several, with commas). A name that means loopback here only (Debian's
// 127.0.1.1 for the own host name) leads to the first interface that could reach others; loopback
// itself is the answer where it was asked for, or where there is nothing else. Fails with
// environment where the interface is not there.
Outcome<std::string> own_address(const std::string& store_host, uint16_t port,
                                 const std::string& interface);

// Where rank 0 listens for MASTER_ADDR: on its addresses alone if they are this machine's, else on
// all (the name is that of a service in front of us, or means something else to the others).
std::vector<SocketAddress> listening_addresses(const std::string& host, uint16_t port);

// All at which others might reach this machine, the best first, loopback left out.
std::vector<std::string> reachable_addresses(const std::string& interface);

}  // namespace muster::worker
