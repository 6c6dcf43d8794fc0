// Where the members of a group are reached: each makes listening sockets, writes down where they
// are in the group's set-up store, and reads what the others wrote. The secret in it is what a
// connection has to present: who does not know it has not read the store and is not of this group.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/address.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/cpu/tcp_socket.h"

namespace muster::worker {

inline constexpr size_t kSecretBytes = 16;

struct ListenAddress {
  SocketAddress tcp;
  std::string local;   // The name of an abstract Unix socket, for ranks of the same node.
  std::string secret;  // kSecretBytes of anything.

  std::string encode() const;
  static std::optional<ListenAddress> decode(std::string_view text);
  friend bool operator==(const ListenAddress&, const ListenAddress&) = default;
};

struct Listeners {
  ListenAddress address;
  std::vector<Socket> listeners;
};

// Listens at the address at which this member says it is reached; on all addresses where that one
// is not this machine's own (behind address translation).
Outcome<Listeners> open_listeners(const Peer& self);

// exchange_through_store() of where each member listens.
Outcome<std::vector<ListenAddress>> exchange_addresses(GroupSetup& setup,
                                                       const ListenAddress& mine);

}  // namespace muster::worker
