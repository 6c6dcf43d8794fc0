#include "worker_lib/backends/cpu/tcp_listeners.h"

#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/random.h"
#include "rendezvous/net/listening_socket.h"
#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {
namespace {

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]);
    const size_t low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace

std::string ListenAddress::encode() const {
  return fmt::format("{} {} {}", tcp.to_string(), to_hex(local), to_hex(secret));
}

std::optional<ListenAddress> ListenAddress::decode(std::string_view text) {
  const size_t first = text.find(' ');
  const size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto address = SocketAddress::parse(text.substr(0, first));
  const auto name = from_hex(text.substr(first + 1, second - first - 1));
  const auto secret = from_hex(text.substr(second + 1));
  if (!address || !name || !secret || secret->size() != kSecretBytes) return std::nullopt;
  return ListenAddress{*address, *name, *secret};
}

Outcome<Listeners> open_listeners(const Peer& self) {
  const std::optional<IpAddress> ip = IpAddress::parse(self.address);
  if (!ip)
    return failed(ErrorCode::system,
                  fmt::format("{} has no usable address: {:?}", describe(self), self.address));
  auto listening = listen_on({{*ip, 0}});
  if (!listening)
    listening = listen_on({{ip->is_v6() ? IpAddress::any_v6() : IpAddress::any_v4(), 0}});
  if (!listening) return failed(ErrorCode::system, listening.error().message);

  Listeners open;
  for (ListeningSocket& one : *listening)
    open.listeners.push_back(std::move(one.fd));
  open.address.tcp = {*ip, listening->front().address.port};
  open.address.secret = random_bytes(kSecretBytes);
  open.address.local = "muster-" + to_hex(random_bytes(8));
  Outcome<Socket> local = listen_local(open.address.local);
  if (!local) return tl::unexpected(local.error());
  open.listeners.push_back(std::move(*local));
  return open;
}

Outcome<std::vector<ListenAddress>> exchange_addresses(GroupSetup& setup,
                                                       const ListenAddress& mine) {
  const auto texts = exchange_through_store(setup, "address", mine.encode());
  if (!texts) return tl::unexpected(texts.error());
  std::vector<ListenAddress> addresses;
  const bool complete = texts->size() == static_cast<size_t>(setup.members.size());
  for (int rank = 0; rank < setup.members.size(); ++rank) {
    const std::optional<ListenAddress> address =
        complete ? ListenAddress::decode((*texts)[static_cast<size_t>(rank)]) : std::nullopt;
    if (!address)
      return failed(ErrorCode::rendezvous,
                    fmt::format("{} wrote something other than its address to the store; give "
                                "every job a store, or a prefix, of its own",
                                describe(setup.members[rank])),
                    {setup.members[rank].rank});
    addresses.push_back(*address);
  }
  return addresses;
}

}  // namespace muster::worker
