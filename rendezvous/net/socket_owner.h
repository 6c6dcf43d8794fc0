// Queries the kernel for the user of a TCP connection of this machine (sock_diag(7), INET_DIAG).
// Blocks for some microseconds. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include <sys/types.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"

namespace muster {

// True if neither end of this TCP connection is closed or half-closed.
bool is_established(int fd);

class SocketOwners {
 public:
  // Tests the query on a connection of its own. Fails if that does not work: netlink is forbidden
  // (seccomp), the kernel lacks the module, a sandbox imitates the kernel.
  static Result<SocketOwners> open();

  // Returns the user who opened the `client` end of an established connection to `server`, both in
  // this network namespace; uids are as seen in this user namespace. If no socket at `client` is
  // connected to `server`, because addresses are translated on the way, searches all sockets at
  // `client`, at most twenty times a second. nullopt: none, a closed one, no uid here, or several
  // users.
  std::optional<uid_t> owner_of(const SocketAddress& client, const SocketAddress& server);
  // The same without the search, for connections whose addresses are not translated.
  std::optional<uid_t> direct_owner_of(const SocketAddress& client, const SocketAddress& server);

 private:
  explicit SocketOwners(UniqueFd netlink) : netlink_(std::move(netlink)) {}
  struct Ends {
    bool is_there = false;    // An end exists, in any state.
    bool has_closed = false;  // One is closed or, without any_server, half-closed.
    std::set<uid_t> owners;
  };
  static std::optional<uid_t> owner_among(const Ends& ends);
  // Adds the ends at `client` (connected to `server`, unless any_server). False: no answer.
  bool ask(const SocketAddress& client, const SocketAddress& server, uint8_t family,
           bool any_server, Ends& ends);

  bool may_search();

  UniqueFd netlink_;
  std::chrono::steady_clock::time_point searches_since_{};
  int searches_ = 0;
  uint32_t sequence_ = 0;
};

}  // namespace muster
