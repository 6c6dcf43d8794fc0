#include "rendezvous/membership/client_check.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

constexpr auto kUsersKept = std::chrono::seconds(1);
constexpr size_t kRefusedSaid = 100;

}  // namespace

ClientCheck::ClientCheck(Options options) : options_(std::move(options)) {}

void ClientCheck::begin() {
  if (!options_.users || options_.allow_any) return;
  own_addresses_ = read_own_addresses();
  if (std::exchange(begun_, true)) return;
  Result<SocketOwners> opened = SocketOwners::open();
  if (opened) {
    owners_ = std::move(*opened);
  } else {
    options_.say(
        fmt::format("every user of this machine can use the job's store: the kernel does "
                    "not tell who connects ({})",
                    opened.error().message));
  }
}

bool ClientCheck::may_come(const SocketAddress& client, const SocketAddress& server) {
  if (!owners_ || !is_own_address(client.ip, own_addresses_)) return true;
  const auto holds_it = [&](const Network& network) { return network.contains(client.ip); };
  if (std::ranges::any_of(options_.allow, holds_it)) return true;
  const std::optional<uid_t> uid = owners_->owner_of(client, server);
  if (uid && is_ours(*uid)) return true;
  say_refusal(uid, client);
  return false;
}

bool ClientCheck::is_ours(uid_t uid) {
  if (uid == 0 || uid == ::geteuid() || users_.contains(uid)) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < users_until_) return false;
  users_ = options_.users();
  users_until_ = std::chrono::steady_clock::now() + kUsersKept;
  return users_.contains(uid);
}

void ClientCheck::say_refusal(std::optional<uid_t> uid, const SocketAddress& client) {
  if (refused_.size() >= kRefusedSaid || !refused_.insert(uid).second) return;
  const std::string who = uid ? fmt::format("a process of uid {}", *uid)
                              : fmt::format(
                                    "a connection from {}, of which the kernel does not "
                                    "say whose it is,",
                                    client.to_string());
  options_.say(
      fmt::format("refused {} at the job's store: it is for uid {}, root and the users "
                  "that the job's processes run as; --store-allow {} admits every user of "
                  "this machine",
                  who, ::geteuid(), client.ip.to_string()));
}

}  // namespace muster
