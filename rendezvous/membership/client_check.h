// Decides which users of this machine may use the job's store: the job's own, root, those that its
// processes here run as, those of other agents here (with a token), and any at an address that
// --store-allow names. The host checks its own machine's clients, each agent its machine's clients
// at the host. One thread.
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
    // Returns the users that the job's processes run as on this machine. Called for unknown users
    // only, at most once a second for each user, and ten times a second in all. Null: no client is
    // checked.
    std::function<std::set<uid_t>()> users;
    bool allow_any = false;      // --store-allow any
    std::vector<Network> allow;  // Clients from there are not checked.
    std::shared_ptr<LocalUsers> local;
  };

  ClientCheck(Options options, std::function<void(const std::string&)> say);

  // Call before clients come. Says once if the kernel does not show who they are: all may come
  // then.
  void begin();
  enum class Verdict { may_come, refused, is_elsewhere };
  // Checks this connection's client; is_elsewhere: only an agent at its address can. Says once for
  // each user who is refused, unless the client has gone already.
  Verdict look(int fd);
  // True if belongs() can answer; tries again if it could not.
  bool knows_owners() { return options_.allow_any || (options_.users && options_.local->works()); }
  // True if the user of the connection from `client` here to `store` may use it. Not asked if NAT
  // is between.
  bool belongs(const SocketAddress& client, const SocketAddress& store);
  // Admits the user of an agent here that has proved the token: its workers may run as that user.
  void admit(uid_t uid) { admitted_.insert(uid); }

 private:
  bool is_unchecked(const IpAddress& address) const;
  bool is_ours(uid_t uid);
  void say_refusal(std::optional<uid_t> uid, const SocketAddress& client);

  const Options options_;
  const std::function<void(const std::string&)> say_;
  bool said_ = false;  // begin() has spoken.
  std::set<uid_t> admitted_;
  std::set<uid_t> users_;      // The last answer of options_.users.
  std::set<uid_t> strangers_;  // Looked up since since_, and not found.
  std::chrono::steady_clock::time_point since_{};
  std::set<std::optional<uid_t>> refused_;
};

}  // namespace muster
