// Which users of this machine may use the job's store: the job's own, root, those that its
// processes here run as, those that other agents here run as (with a token), and whoever comes from
// a network that the user named (--store-allow). Clients at other machines' addresses are none of
// its business. One thread.
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
  // Whether the client of this connection may be served. Says once for each user if not, and
  // nothing of one that has gone already.
  bool may_come(int fd);
  // An agent that has proved the token runs as this user here, and so may its workers.
  void admit(uid_t uid) { admitted_.insert(uid); }

 private:
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
