#include "worker_lib/backends/cpu/tcp_listeners.h"

#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/random.h"
#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {

std::string random_socket_name() {
  return "muster-" + to_hex(random_bytes(16));
}

std::string ListenAddress::encode() const {
  return fmt::format("{} {}", tcp.to_string(), to_hex(local));
}

std::optional<ListenAddress> ListenAddress::decode(std::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto address = SocketAddress::parse(text.substr(0, blank));
  const auto name = from_hex(text.substr(blank + 1));
  if (!address || !name) return std::nullopt;
  return ListenAddress{*address, *name};
}

Outcome<Listeners> open_listeners(const Peer& self) {
  const std::optional<IpAddress> ip = IpAddress::parse(self.address);
  if (!ip)
    return failed(ErrorCode::system,
                  fmt::format("{} has no usable address: {:?}", describe(self), self.address));
  auto listening = listen_near(*ip);
  if (!listening) return failed(ErrorCode::system, listening.error().message);

  Listeners open;
  open.listeners.push_back(std::move(listening->fd));
  open.address = {{*ip, listening->address.port}, random_socket_name()};
  open.listeners.push_back(listen_local(open.address.local));
  if (!open.listeners.back()) return socket_failure("listen on an abstract Unix socket", errno);
  return open;
}

}  // namespace muster::worker
