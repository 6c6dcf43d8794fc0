// Which users of this machine may use the job's store: the job's own, root, those that its
// processes here run as, and whoever comes from a network that the user named (--store-allow).
// Clients at other machines' addresses are none of its business. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/net/address.h"
#include "rendezvous/net/socket_owner.h"

namespace muster {

class ClientCheck {
 public:
  struct Options {
    // The users that processes of the job run as on this machine. Asked at most once a second,
    // about a user who is neither this process's nor root. Null: no client is checked.
    std::function<std::set<uid_t>()> users;
    bool allow_any = false;      // --store-allow any
    std::vector<Network> allow;  // Not checked.
    std::function<void(const std::string&)> say;
  };

  explicit ClientCheck(Options options);

  // Before clients come. Says once if the kernel does not tell who they are: then all may come.
  void begin();
  // Whether a client that has connected from here may be served. Says once for each user if not.
  bool may_come(const SocketAddress& client, const SocketAddress& server);

 private:
  bool is_ours(uid_t uid);
  void say_refusal(std::optional<uid_t> uid, const SocketAddress& client);

  Options options_;
  bool begun_ = false;
  std::optional<SocketOwners> owners_;
  std::vector<IpAddress> own_addresses_;
  std::set<uid_t> users_;
  std::chrono::steady_clock::time_point users_until_{};
  std::set<std::optional<uid_t>> refused_;
};

}  // namespace muster
