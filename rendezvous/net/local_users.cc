#include "rendezvous/net/local_users.h"

#include <utility>

#include <fmt/format.h>

#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

constexpr auto kAddressesKept = std::chrono::seconds(1);

}  // namespace

std::string user_text(const std::optional<uid_t>& uid) {
  return uid ? fmt::format("uid {}", *uid) : "a user that the kernel does not tell";
}

LocalUsers::LocalUsers() {
  works();
}

bool LocalUsers::works() {
  if (owners_) return true;
  Result<SocketOwners> opened = SocketOwners::open();
  if (opened) {
    owners_ = std::move(*opened);
  } else {
    why_not_ = opened.error().message;
  }
  return owners_.has_value();
}

LocalUsers::Found LocalUsers::look(int fd) {
  const SocketAddress client = remote_address_of(fd);
  if (!owners_ || !is_own(client.ip)) return {};
  const std::optional<uid_t> uid = owners_->owner_of(client, local_address_of(fd));
  // If the client has closed its end, the owner found may be that of another socket.
  const bool is_over = !is_established(fd);
  return {true, is_over, is_over ? std::nullopt : uid};
}

std::optional<uid_t> LocalUsers::direct_owner_of(const SocketAddress& client,
                                                 const SocketAddress& server) {
  return owners_ ? owners_->direct_owner_of(client, server) : std::nullopt;
}

bool LocalUsers::is_own(const IpAddress& address) {
  if (address.is_loopback()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now >= own_until_) {
    std::vector<IpAddress> found = read_own_addresses();
    if (!found.empty()) own_ = std::move(found);  // Empty: no descriptor was left.
    own_until_ = now + kAddressesKept;
  }
  return is_own_address(address, own_);
}

}  // namespace muster
