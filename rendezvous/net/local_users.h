// Whose the clients on this machine are: SocketOwners with what this machine's addresses are. One
// thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/net/address.h"
#include "rendezvous/net/socket_owner.h"

namespace muster {

// "uid 7"; "a user that the kernel does not tell".
std::string user_text(const std::optional<uid_t>& uid);

class LocalUsers {
 public:
  LocalUsers();

  // Whether the kernel tells whose a connection is; tries again if it did not.
  bool works();
  const std::string& why_not() const { return why_not_; }

  struct Found {
    bool is_local = false;     // It comes from an address of this machine, and the kernel tells.
    bool is_over = false;      // One of its ends is closed, or half-closed: nobody is to be served.
    std::optional<uid_t> uid;  // nullopt: of a local one, that nobody can be said to own it.
  };
  // Of the accepted connection `fd`.
  Found look(int fd);
  // See SocketOwners. nullopt as well if the kernel does not tell.
  std::optional<uid_t> direct_owner_of(const SocketAddress& client, const SocketAddress& server);
  bool is_own(const IpAddress& address);

 private:
  std::optional<SocketOwners> owners_;
  std::string why_not_;
  std::vector<IpAddress> own_;
  std::chrono::steady_clock::time_point own_until_{};
};

}  // namespace muster
