#include "rendezvous/backends/endpoint_finder.h"

#include <cerrno>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/text.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/port_holder.h"

namespace muster {

EndpointFinder::EndpointFinder(boost::asio::io_context& io, Options options, Handlers handlers)
    : HostFinder(io, options, without_keeper(options.host), std::move(handlers)),
      options_(std::move(options)),
      resolver_(io, options_.look_up),
      retry_(io) {
  CHECK(options_.port != 0 || options_.is_host.value_or(false));
}

void EndpointFinder::cancel() {
  HostFinder::cancel();
  port_is_held_here_ = false;
  claiming_ = Claiming();
  retry_.cancel();
}

// ---- another node hosts

void EndpointFinder::call(const HostRecord&) {
  connecting_ = connect_any(
      io_, options_.host, static_cast<uint16_t>(options_.port), dial_deadline(), connect_options_,
      [this](NetResult<TcpSocket> socket) {
        if (!socket && port_is_held_here_ && socket.error().failure == NetFailure::refused) {
          socket.error().message += fmt::format(
              "; this machine cannot be the host either: {}",
              connection_at(options_.port)
                  .value_or(fmt::format("something on it holds port {}: `ss -tanp` may show it",
                                        options_.port)));
        }
        on_called(std::move(socket));
      });
}

// ---- this node may host

void EndpointFinder::take(const Keeper::Seen&) {
  options_.is_host ? listen_as_told() : claim();
}

void EndpointFinder::claim() {
  ClaimOptions how;
  how.limit = options_.claim_limit;
  how.look_up = options_.look_up;
  how.listen = options_.listen;
  claiming_ = claim_endpoint(
      io_, options_.host, static_cast<uint16_t>(options_.port), how,
      [this](std::variant<Claim, NotHost> outcome) {
        if (auto* claim = std::get_if<Claim>(&outcome))
          return on_won(std::move(claim->listener), 0, claim->reached, claim->reached.ip);
        const NotHost& other = std::get<NotHost>(outcome);
        port_is_held_here_ = other.why == NotHost::Why::port_taken;
        // Another node was faster, and may be reachable now.
        const bool is_lost = port_is_held_here_ || other.why == NotHost::Why::somebody_else;
        on_not_taken(is_lost ? hosting::Taken::How::lost : hosting::Taken::How::not_ours,
                     {ExitCode::rendezvous, other.message});
      });
}

// ---- the user chose this node

void EndpointFinder::listen_as_told() {
  const std::weak_ptr<int> dial = dial_;
  resolver_.resolve(options_.host, static_cast<uint16_t>(options_.port), dial_deadline(),
                    [this, dial](NetResult<std::vector<SocketAddress>> addresses) {
                      if (dial.lock()) on_resolved(std::move(addresses));
                    });
}

// If the name does not resolve here (yet), listens on all addresses.
void EndpointFinder::on_resolved(const NetResult<std::vector<SocketAddress>>& addresses) {
  const auto port = static_cast<uint16_t>(options_.port);
  if (addresses) meant_ = addresses->front().ip;
  listen_at(addresses ? plan_listening(options_.host, *addresses, read_own_addresses())
                      : ListenPlan{{SocketAddress{IpAddress::any_v6(), port}}, true});
}

void EndpointFinder::listen_at(const ListenPlan& plan) {
  auto listener = Listener::open(io_, plan.addresses, options_.listen);
  if (listener) return on_won(std::move(*listener), 0, {}, meant_);
  const ListenError& error = listener.error();
  const auto now = std::chrono::steady_clock::now();
  if (!taken_since_) taken_since_ = now;
  if (error.error_number == EADDRINUSE && now - *taken_since_ < options_.taken_patience) {
    return call_after(retry_, std::chrono::milliseconds(20),
                      [this, plan, dial = std::weak_ptr<int>(dial_)] {
                        if (dial.lock()) listen_at(plan);
                      });
  }
  // A connection that holds the port will end: the node retries until its time-out.
  const auto held = error.error_number == EADDRINUSE ? connection_at(options_.port) : std::nullopt;
  on_not_taken(hosting::Taken::How::failed, held ? Error{ExitCode::rendezvous, *held}
                                                 : Error{ExitCode::environment, error.message});
}

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
