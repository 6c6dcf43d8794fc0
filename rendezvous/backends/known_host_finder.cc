#include "rendezvous/backends/known_host_finder.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/text.h"

namespace muster {

KnownHostFinder::KnownHostFinder(boost::asio::io_context& io, Options options, Handlers handlers)
    : HostFinder(io, options, without_keeper(options.host), std::move(handlers)),
      options_(std::move(options)) {
  CHECK(options_.is_host && !options_.ports.empty());
  for (const std::string_view one : split(options_.host, ',')) {
    if (const auto address = IpAddress::parse(one)) addresses_.push_back(*address);
  }
}

void KnownHostFinder::call(const HostRecord&) {
  call_port(0);
}

// Goes on to the next port unless the name does not exist yet.
void KnownHostFinder::call_port(size_t tried) {
  const uint16_t port = options_.ports[at_ % options_.ports.size()];
  const Deadline limit = options_.ports.size() == 1
                             ? dial_deadline()
                             : std::chrono::steady_clock::now() + options_.port_limit;
  const auto called = [this, tried](NetResult<TcpSocket> socket) {
    if (socket) return on_called(std::move(socket));
    ++at_;
    if (!socket.error().name_is_missing() && tried + 1 < options_.ports.size())
      return call_port(tried + 1);
    on_called(std::move(socket));
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

void KnownHostFinder::take(const Keeper::Seen&) {
  std::string taken;
  for (const uint16_t port : options_.ports) {
    auto listener =
        Listener::open(io_, {SocketAddress{IpAddress::any_v6(), port}}, options_.listen);
    if (listener) return on_won(std::move(*listener), 0);
    taken = listener.error().message;
    if (listener.error().error_number != EADDRINUSE) break;
  }
  on_not_taken(
      hosting::Taken::How::failed,
      {ExitCode::environment,
       options_.ports.size() == 1
           ? taken
           : fmt::format("node rank 0 hosts the job at one of the ports {}, and cannot: {}; give "
                         "all nodes --rdzv-endpoint HOST:PORT",
                         fmt::join(options_.ports, ", "), taken)});
}

}  // namespace muster
