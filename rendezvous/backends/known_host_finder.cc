#include "rendezvous/backends/known_host_finder.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/text.h"

namespace muster {

KnownHostFinder::KnownHostFinder(boost::asio::io_context& io, Options options, OnHost on_host)
    : HostFinder(io, options, std::move(on_host)), options_(std::move(options)) {
  CHECK(options_.is_host && !options_.ports.empty());
  for (const std::string_view one : split(options_.host, ',')) {
    if (const auto address = IpAddress::parse(one)) addresses_.push_back(*address);
  }
}

void KnownHostFinder::find() {
  if (*options_.is_host) {
    listen();
  } else {
    call(0);
  }
}

// A name that is not there yet has no other port.
void KnownHostFinder::call(size_t tried) {
  const uint16_t port = options_.ports[at_ % options_.ports.size()];
  const Deadline limit = options_.ports.size() == 1
                             ? dial_deadline()
                             : std::chrono::steady_clock::now() + options_.port_limit;
  const auto called = [this, tried](NetResult<TcpSocket> socket) {
    if (socket) return finish(Dialled{std::move(*socket), std::nullopt, false});
    const NetError& error = socket.error();
    ++at_;
    if (!error.name_is_missing() && tried + 1 < options_.ports.size()) return call(tried + 1);
    fail_dial(error.error(), error.failure == NetFailure::refused);
  };
  if (addresses_.empty()) {
    connecting_ = connect_any(io_, options_.host, port, limit, connect_options_, called);
    return;
  }
  std::vector<SocketAddress> at_port;
  for (const IpAddress& address : addresses_)
    at_port.push_back({address, port});
  connecting_ = connect_any(io_, options_.host, at_port, limit, connect_options_, called);
}

void KnownHostFinder::listen() {
  std::string taken;
  for (const uint16_t port : options_.ports) {
    auto listener =
        Listener::open(io_, {SocketAddress{IpAddress::any_v6(), port}}, options_.listen);
    if (listener) return host(std::move(*listener));
    taken = listener.error().message;
    if (listener.error().error_number != EADDRINUSE) break;
  }
  fail_dial({ExitCode::environment,
             options_.ports.size() == 1
                 ? taken
                 : fmt::format("node rank 0 hosts the job at one of the ports {}, and cannot: {}; "
                               "give all nodes --rdzv-endpoint HOST:PORT",
                               fmt::join(options_.ports, ", "), taken)});
}

}  // namespace muster
