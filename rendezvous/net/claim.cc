#include "rendezvous/net/claim.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/random.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/first_bytes.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

bool asks_for_loopback(const std::string& host) {
  const std::optional<IpAddress> address = IpAddress::parse(host);
  if (address) return address->is_loopback();
  return host == "localhost" || host.ends_with(".localhost");
}

NotHost not_host(const NetError& error) {
  const auto why = error.name_is_missing() ? NotHost::Why::name_missing : NotHost::Why::unreachable;
  return {why, 0, error.message};
}

NotHost not_host(const ListenError& error) {
  const auto why =
      error.error_number == EADDRINUSE ? NotHost::Why::port_taken : NotHost::Why::cannot_listen;
  return {why, error.error_number, error.message};
}

struct ClaimState : std::enable_shared_from_this<ClaimState> {
  ClaimState(boost::asio::io_context& loop, ClaimOptions how, ClaimCallback done)
      : io(loop),
        options(std::move(how)),
        callback(std::move(done)),
        limit(loop),
        resolver(loop, options.look_up) {}

  void begin(const std::string& endpoint_host, uint16_t port) {
    host = endpoint_host;
    deadline = std::chrono::steady_clock::now() + options.limit;
    resolver.resolve(host, port, deadline, [weak = weak_from_this()](auto addresses) {
      const auto self = weak.lock();
      if (!self || !self->callback) return;
      if (!addresses) return self->finish(not_host(addresses.error()));
      self->listen(*addresses);
    });
  }

  void listen(std::vector<SocketAddress> resolved) {
    const ListenPlan plan = plan_listening(host, resolved, read_own_addresses());
    everywhere = plan.everywhere;
    auto opened = Listener::open(io, plan.addresses, options.listen);
    if (!opened) return finish(not_host(opened.error()));
    listener = std::move(*opened);
    listener->on_probe([weak = weak_from_this()](std::string_view got) {
      const auto self = weak.lock();
      const bool ours = self && self->callback && got == self->nonce;
      if (ours) boost::asio::post(self->io, [self] { self->won(); });
      return ours;
    });
    for (SocketAddress& address : resolved)
      address.port = listener->port();
    name = fmt::format("the endpoint {}:{}", host, listener->port());
    probe(resolved);
  }

  void probe(const std::vector<SocketAddress>& addresses) {
    connecting = connect_any(io, name, addresses, deadline, {},
                             [weak = weak_from_this()](NetResult<TcpSocket> connected) {
                               const auto self = weak.lock();
                               if (!self || !self->callback) return;
                               if (!connected) return self->finish(not_host(connected.error()));
                               self->send_nonce(std::move(*connected));
                             });
  }

  void send_nonce(TcpSocket connected) {
    socket.emplace(std::move(connected));
    reached = remote_address_of(socket->native_handle());
    call_at(limit, deadline, [self = shared_from_this()] {
      self->lost("the process there does not answer the agents' protocol");
    });
    message = std::string(kProbeMagic) + nonce;
    boost::asio::async_write(*socket, boost::asio::buffer(message),
                             [self = shared_from_this()](boost::system::error_code error, size_t) {
                               if (error) self->lost("it closed the connection");
                               if (self->socket) self->read_answer();
                             });
  }

  void read_answer() {
    socket->async_read_some(boost::asio::buffer(answer),
                            [self = shared_from_this()](boost::system::error_code error, size_t) {
                              if (!error && self->answer[0] == kProbeIsOurs)
                                return;  // won() follows
                              if (!error && self->answer[0] == kProbeIsNotOurs)
                                self->lost("another agent listens there");
                              else
                                self->lost("the process there is not an agent");
                            });
  }

  void won() {
    if (callback) finish(Claim{std::move(listener), reached, everywhere});
  }

  void lost(const std::string& why) {
    if (!callback) return;
    finish(NotHost{NotHost::Why::somebody_else, 0,
                   fmt::format("{} ({}) is not this process: {}", name, reached.to_string(), why)});
  }

  // The callback may release everything, including the caller's handle.
  void finish(std::variant<Claim, NotHost> outcome) {
    const auto self = shared_from_this();
    const ClaimCallback call = std::exchange(callback, nullptr);
    stop();
    call(std::move(outcome));
  }

  void stop() {
    callback = nullptr;
    limit.cancel();
    connecting = {};
    socket.reset();
    listener.reset();
  }

  boost::asio::io_context& io;
  ClaimOptions options;
  ClaimCallback callback;
  const std::string nonce = random_bytes(kNonceBytes);
  Deadline deadline;
  boost::asio::steady_timer limit;
  Resolver resolver;
  std::string host;
  std::string name;
  bool everywhere = false;
  std::unique_ptr<Listener> listener;
  Connecting connecting;
  std::optional<TcpSocket> socket;
  SocketAddress reached;
  std::string message;
  std::array<char, 1> answer{};
};

}  // namespace

ListenPlan plan_listening(const std::string& host, const std::vector<SocketAddress>& resolved,
                          const std::vector<IpAddress>& own) {
  CHECK(!resolved.empty());
  const uint16_t port = resolved.front().port;
  const bool loopback = asks_for_loopback(host);
  std::vector<SocketAddress> chosen;
  for (const SocketAddress& address : resolved) {
    const bool ours = is_own_address(address.ip, own);
    // On machines without IPv6, many hosts files still map localhost to ::1.
    if (loopback && !ours) continue;
    if (!ours || address.ip.is_loopback() != loopback) return {{{IpAddress::any_v6(), port}}, true};
    if (std::find(chosen.begin(), chosen.end(), address) == chosen.end()) chosen.push_back(address);
  }
  if (chosen.empty()) return {{{IpAddress::any_v6(), port}}, true};
  return {chosen, false};
}

Claiming claim_endpoint(boost::asio::io_context& io, const std::string& host, uint16_t port,
                        ClaimOptions options, ClaimCallback callback) {
  const auto state = std::make_shared<ClaimState>(io, std::move(options), std::move(callback));
  state->begin(host, port);
  return Claiming(state.get(), [state](void*) { state->stop(); });
}

}  // namespace muster
