// Finds the user of a client on this machine: SocketOwners plus the machine's own addresses, which
// are read again when older than a second. One thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/net/address.h"
#include "rendezvous/net/socket_owner.h"

namespace muster {

// "uid 7", or "a user that the kernel does not tell" for nullopt.
std::string user_text(const std::optional<uid_t>& uid);

class LocalUsers {
 public:
  LocalUsers();

  // Returns whether the kernel reports the users of connections; retries if it did not before.
  bool works();
  const std::string& why_not() const { return why_not_; }

  struct Found {
    bool is_local = false;     // True if it is on this machine; always false unless works().
    bool is_over = false;      // An end is closed or half-closed: do not serve it.
    std::optional<uid_t> uid;  // The user of a local client, if it is known for sure.
  };
  // Looks up the client of the accepted connection `fd`.
  Found look(int fd);
  // See SocketOwners; nullopt also unless works().
  std::optional<uid_t> direct_owner_of(const SocketAddress& client, const SocketAddress& server);
  bool is_own(const IpAddress& address);

 private:
  std::optional<SocketOwners> owners_;
  std::string why_not_;
  std::vector<IpAddress> own_;
  std::chrono::steady_clock::time_point own_until_{};
};

}  // namespace muster
