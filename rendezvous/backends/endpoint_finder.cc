#include "rendezvous/backends/endpoint_finder.h"

#include <cerrno>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/net/interfaces.h"

namespace muster {
EndpointFinder::EndpointFinder(boost::asio::io_context& io, Options options, OnHost on_host)
    : HostFinder(io, options, std::move(on_host)),
      options_(std::move(options)),
      resolver_(io, options_.look_up),
      retry_(io) {
  CHECK(options_.port != 0 || options_.is_host.value_or(false));
}

void EndpointFinder::find() {
  called_again_ = port_is_held_here_ = false;
  if (options_.is_host.value_or(false)) {
    listen_as_told();
  } else if (std::exchange(doubted_, false) && !options_.is_host) {
    claim(std::nullopt);
  } else {
    call();
  }
}

void EndpointFinder::cancel() {
  HostFinder::cancel();
  claiming_ = Claiming();
  retry_.cancel();
}

// ---- somebody else hosts

void EndpointFinder::call() {
  connecting_ = connect_any(io_, options_.host, static_cast<uint16_t>(options_.port),
                            dial_deadline(), connect_options_,
                            [this](NetResult<TcpSocket> socket) { on_called(std::move(socket)); });
}

void EndpointFinder::on_called(NetResult<TcpSocket> socket) {
  if (socket) return finish(Dialled{std::move(*socket), std::nullopt, false});
  NetError error = std::move(socket.error());
  if (port_is_held_here_ && error.failure == NetFailure::refused) {
    error.message += fmt::format(
        "; this machine cannot be the host either: something on it holds port {} without listening "
        "there, most likely an outgoing connection: choose a port below 32768 (`ss -tanp` shows "
        "it)",
        options_.port);
  }
  if (options_.is_host.has_value() || error.name_is_missing() || called_again_)
    return fail_dial(error.error(), error.failure == NetFailure::refused);
  claim(error);
}

// ---- we may

// Without a `why_not`, a claim that fails is followed by a call.
void EndpointFinder::claim(std::optional<NetError> why_not) {
  ClaimOptions how;
  how.limit = options_.claim_limit;
  how.look_up = options_.look_up;
  how.listen = options_.listen;
  claiming_ = claim_endpoint(
      io_, options_.host, static_cast<uint16_t>(options_.port), how,
      [this, why_not](std::variant<Claim, NotHost> outcome) {
        if (auto* claim = std::get_if<Claim>(&outcome))
          return host(std::move(claim->listener), claim->reached);
        const NotHost::Why why = std::get<NotHost>(outcome).why;
        if (!why_not || why == NotHost::Why::port_taken || why == NotHost::Why::somebody_else) {
          // Another node was faster, and may be reachable now.
          called_again_ = true;
          port_is_held_here_ = why == NotHost::Why::port_taken;
          return call();
        }
        fail_dial(why_not->error(), why_not->failure == NetFailure::refused);
      });
}

// ---- we do, says the user

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
  listen_at(addresses ? plan_listening(options_.host, *addresses, read_own_addresses())
                      : ListenPlan{{SocketAddress{IpAddress::any_v6(), port}}, true});
}

void EndpointFinder::listen_at(const ListenPlan& plan) {
  auto listener = Listener::open(io_, plan.addresses, options_.listen);
  if (listener) return host(std::move(*listener));
  const ListenError& error = listener.error();
  const auto now = std::chrono::steady_clock::now();
  if (!taken_since_) taken_since_ = now;
  if (error.error_number == EADDRINUSE && now - *taken_since_ < options_.taken_patience) {
    retry_.expires_after(std::chrono::milliseconds(20));
    retry_.async_wait(
        [this, plan, dial = std::weak_ptr<int>(dial_)](boost::system::error_code stopped) {
          if (!stopped && dial.lock()) listen_at(plan);
        });
    return;
  }
  fail_dial({ExitCode::environment, error.message});
}

}  // namespace muster
