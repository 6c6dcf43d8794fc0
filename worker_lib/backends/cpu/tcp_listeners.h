// How the members of a group find each other's sockets: each opens listening sockets, writes their
// addresses into the group's set-up store, and reads those of the others. The addresses are no
// secret; see link_proof.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/stream_socket.h"

namespace muster::worker {

// A name for an abstract Unix socket, which others cannot guess.
std::string random_socket_name();

struct ListenAddress {
  SocketAddress tcp;
  std::string local;  // The name of an abstract Unix socket, for ranks of the same node.

  std::string encode() const;
  static std::optional<ListenAddress> decode(std::string_view text);
  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};

struct Listeners {
  ListenAddress address;
  std::vector<Socket> listeners;
};

// Listens on the address that this member announces; if that is not an address of this machine
// (address translation), on all addresses.
Outcome<Listeners> open_listeners(const Peer& self);

// exchange_through_store() of the listening addresses.
Outcome<std::vector<ListenAddress>> exchange_addresses(GroupSetup& setup,
                                                       const ListenAddress& mine);

}  // namespace muster::worker
