// Listening sockets of the members of a group, and the exchange of their addresses through the
// group's set-up store. The addresses are no secret; see link_proof.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/stream_socket.h"

namespace muster::worker {

// Returns an unguessable name for an abstract Unix socket.
std::string random_socket_name();

struct ListenAddress {
  SocketAddress tcp;
  std::string local;  // Name of an abstract Unix socket, for ranks of the same node.

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

}  // namespace muster::worker
