// Which user a TCP connection of this machine belongs to, as the kernel says (sock_diag(7),
// INET_DIAG). Blocks for some microseconds. One thread.
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

// Whether neither end of this TCP connection is closed, or half-closed.
bool is_established(int fd);

class SocketOwners {
 public:
  // Asks about a connection of its own first. Fails with the reason where the kernel does not tell:
  // netlink is forbidden (seccomp), the kernel lacks the module, a sandbox imitates the kernel.
  static Result<SocketOwners> open();

  // The user of the process that opened the end at `client` of an established connection to
  // `server`, both of this network namespace, numbered as this process's user namespace has it.
  // Where no such end has `server`, since addresses are translated on the way, those at `client`
  // count, twenty times a second. nullopt: there is none, it was closed, its user has no number
  // here, or several users have one.
  std::optional<uid_t> owner_of(const SocketAddress& client, const SocketAddress& server);
  // The same where no address is translated: only an end that has `server` counts.
  std::optional<uid_t> direct_owner_of(const SocketAddress& client, const SocketAddress& server);

 private:
  explicit SocketOwners(UniqueFd netlink) : netlink_(std::move(netlink)) {}
  struct Ends {
    bool is_there = false;    // One at the client's address, in whatever state.
    bool has_closed = false;  // One that is closed, or half-closed.
    std::set<uid_t> owners;
  };
  static std::optional<uid_t> owner_among(const Ends& ends);
  // False: no answer.
  bool ask(const SocketAddress& client, const SocketAddress& server, uint8_t family,
           bool any_server, Ends& ends);

  bool may_search();

  UniqueFd netlink_;
  std::chrono::steady_clock::time_point searches_since_{};
  int searches_ = 0;
  uint32_t sequence_ = 0;
};

}  // namespace muster
