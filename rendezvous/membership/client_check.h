// Which users of this machine may use the job's store: the job's own, root, those that its
// processes here run as, those that other agents here run as (with a token), and whoever comes from
// a network that the user named (--store-allow). The host asks it about the store's clients here,
// every agent about its own machine's at the host. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/net/address.h"
#include "rendezvous/net/local_users.h"

namespace muster {

class ClientCheck {
 public:
  struct Options {
    // The users that processes of the job run as on this machine. Asked at most once a second about
    // each user who is neither this process's nor root, and ten times in all. Null: no client is
    // checked.
    std::function<std::set<uid_t>()> users;
    bool allow_any = false;      // --store-allow any
    std::vector<Network> allow;  // Not checked.
    std::shared_ptr<LocalUsers> local;
  };

  ClientCheck(Options options, std::function<void(const std::string&)> say);

  // Before clients come. Says once if the kernel does not tell who they are: then all may come.
  void begin();
  enum class Verdict { may_come, refused, is_elsewhere };
  // Of the client of this connection; is_elsewhere: the agent at its machine's address has to know.
  // Says once for each user who is refused, and nothing of one that has gone already.
  Verdict look(int fd);
  // Whether belongs() can tell; tries again if it could not.
  bool knows_owners();
  // Whether the connection from `client` here to the store is of a user who may use it. Where
  // addresses are translated nobody asks.
  bool belongs(const SocketAddress& client, const SocketAddress& store);
  // An agent that has proved the token runs as this user here, and so may its workers.
  void admit(uid_t uid) { admitted_.insert(uid); }

 private:
  bool is_unchecked(const IpAddress& address) const;
  bool is_ours(uid_t uid);
  void say_refusal(std::optional<uid_t> uid, const SocketAddress& client);

  const Options options_;
  const std::function<void(const std::string&)> say_;
  bool said_ = false;  // That the kernel does not tell.
  std::set<uid_t> admitted_;
  std::set<uid_t> users_;      // At the last look.
  std::set<uid_t> strangers_;  // Looked for since `since_`, and not found.
  std::chrono::steady_clock::time_point since_{};
  std::set<std::optional<uid_t>> refused_;
};

}  // namespace muster
