#include "rendezvous/membership/client_check.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

constexpr auto kUsersKept = std::chrono::seconds(1);
constexpr size_t kLooksMax = 10;  // Limit per kUsersKept: each is a pass over /proc.
constexpr size_t kRefusedSaid = 100;

}  // namespace

ClientCheck::ClientCheck(Options options, std::function<void(const std::string&)> say)
    : options_(std::move(options)), say_(std::move(say)) {}

void ClientCheck::begin() {
  if (!options_.users || options_.allow_any || options_.local->works()) return;
  if (std::exchange(said_, true)) return;
  say_(
      fmt::format("every user of this machine can use the job's store: the kernel does not show "
                  "the owner of a connection ({})",
                  options_.local->why_not()));
}

ClientCheck::Verdict ClientCheck::look(int fd) {
  const SocketAddress client = remote_address_of(fd);
  if (!options_.users || is_unchecked(client.ip)) return Verdict::may_come;
  const LocalUsers::Found found = options_.local->look(fd);
  if (!found.is_local)
    return options_.local->is_own(client.ip) ? Verdict::may_come : Verdict::is_elsewhere;
  if (found.uid && is_ours(*found.uid)) return Verdict::may_come;
  if (!found.is_over) say_refusal(found.uid, client);
  return Verdict::refused;
}

bool ClientCheck::belongs(const SocketAddress& client, const SocketAddress& store) {
  if (is_unchecked(client.ip)) return true;
  if (!options_.users) return false;
  const std::optional<uid_t> uid = options_.local->direct_owner_of(client, store);
  return uid && is_ours(*uid);
}

bool ClientCheck::is_unchecked(const IpAddress& address) const {
  const auto holds_it = [&](const Network& network) { return network.contains(address); };
  return options_.allow_any || std::ranges::any_of(options_.allow, holds_it);
}

bool ClientCheck::is_ours(uid_t uid) {
  if (uid == 0 || uid == ::geteuid() || admitted_.contains(uid) || users_.contains(uid))
    return true;
  const auto now = std::chrono::steady_clock::now();
  if (now >= since_ + kUsersKept) {
    strangers_.clear();
    since_ = now;
  }
  if (strangers_.contains(uid) || strangers_.size() >= kLooksMax) return false;
  users_ = options_.users();
  if (!users_.contains(uid)) strangers_.insert(uid);
  return users_.contains(uid);
}

void ClientCheck::say_refusal(std::optional<uid_t> uid, const SocketAddress& client) {
  if (refused_.size() >= kRefusedSaid || !refused_.insert(uid).second) return;
  const std::string who =
      uid ? fmt::format("a process of uid {}", *uid)
          : fmt::format("a connection from {}, whose owner the kernel does not show,",
                        client.to_string());
  say_(
      fmt::format("refused {} at the job's store: it is for uid {}, root and the users "
                  "that the job's processes run as; --store-allow {} admits every user of "
                  "this machine",
                  who, ::geteuid(), client.ip.to_string()));
}

}  // namespace muster
