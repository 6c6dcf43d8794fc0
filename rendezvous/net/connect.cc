#include "rendezvous/net/connect.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

using boost::asio::ip::tcp;

tcp::endpoint endpoint_of(const SocketAddress& address) {
  sockaddr_storage raw{};
  const socklen_t length = address.to_sockaddr(raw);
  tcp::endpoint endpoint;
  endpoint.resize(length);
  std::memcpy(endpoint.data(), &raw, length);
  return endpoint;
}

struct Attempt {
  explicit Attempt(boost::asio::io_context& io, const SocketAddress& to)
      : address(to), socket(io) {}
  SocketAddress address;
  TcpSocket socket;
  bool pending = true;
  int error = 0;
};

// Without a listener, a connect to a local port can meet itself (simultaneous open, RFC 9293 §3.5).
bool met_itself(int fd) {
  return local_address_of(fd) == remote_address_of(fd);
}

NetFailure overall_failure(const std::vector<std::unique_ptr<Attempt>>& attempts) {
  const auto any = [&](auto condition) {
    return std::any_of(attempts.begin(), attempts.end(),
                       [&](const auto& one) { return condition(*one); });
  };
  if (any([](const Attempt& one) { return one.error == ECONNREFUSED; })) return NetFailure::refused;
  if (any([](const Attempt& one) { return one.pending || one.error == ETIMEDOUT; }))
    return NetFailure::timed_out;
  if (any([](const Attempt& one) { return is_out_of_descriptors(one.error); }))
    return NetFailure::exhausted;
  return NetFailure::unreachable;
}

// Lists each address with its outcome; omits an address that equals `name`.
std::string outcomes(const std::string& name,
                     const std::vector<std::unique_ptr<Attempt>>& attempts) {
  std::string text;
  for (const auto& one : attempts) {
    const std::string address = one->address.to_string();
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", address == name ? "" : address + " ",
                        one->pending ? "did not answer in time" : std::strerror(one->error));
  }
  return text;
}

const char* next_step(NetFailure failure) {
  if (failure == NetFailure::refused) return "check that the other side is running and the port";
  if (failure == NetFailure::exhausted) return "raise the limit of descriptors (ulimit -n)";
  return "check the address, the routes and the firewalls between";
}

struct ConnectState : std::enable_shared_from_this<ConnectState> {
  ConnectState(boost::asio::io_context& loop, std::string what, Deadline until, ConnectOptions how,
               ConnectCallback done)
      : io(loop),
        name(std::move(what)),
        options(std::move(how)),
        callback(std::move(done)),
        deadline(until),
        next(loop),
        limit(loop),
        resolver(loop, options.look_up) {}

  void start(const std::vector<SocketAddress>& addresses) {
    todo = interleave_families(addresses);
    call_at(limit, deadline, [self = shared_from_this()] { self->give_up(); });
    try_next();
  }

  // Tries the next address; gives up if none is left and no attempt is pending.
  void try_next() {
    if (!callback) return;
    next.cancel();
    if (todo.empty()) {
      const bool waiting = std::any_of(attempts.begin(), attempts.end(),
                                       [](const auto& one) { return one->pending; });
      if (!waiting) give_up();
      return;
    }
    attempts.push_back(std::make_unique<Attempt>(io, todo.front()));
    todo.erase(todo.begin());
    Attempt& attempt = *attempts.back();
    if (const int error = prepare(attempt.socket, attempt.address)) return ended(attempt, error);
    attempt.socket.async_connect(
        endpoint_of(attempt.address),
        [self = shared_from_this(), &attempt](boost::system::error_code error) {
          self->ended(attempt, error.value());
        });
    if (todo.empty()) return;
    call_after(next, options.attempt_delay, [self = shared_from_this()] { self->try_next(); });
  }

  static int prepare(TcpSocket& socket, const SocketAddress& to) {
    // Asio's open() does not set CLOEXEC: programs that we start would inherit the descriptor.
    const int fd =
        ::socket(to.ip.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    boost::system::error_code error;
    socket.assign(to.ip.is_v6() ? tcp::v6() : tcp::v4(), fd, error);
    if (error) ::close(fd);
    return error.value();
  }

  void ended(Attempt& attempt, int error) {
    attempt.pending = false;
    if (!callback) return;
    if (error == 0 && met_itself(attempt.socket.native_handle())) error = ECONNREFUSED;
    if (error != 0) {
      attempt.error = error;
      boost::system::error_code ignored;
      attempt.socket.close(ignored);
      return try_next();
    }
    set_connection_options(attempt.socket.native_handle(), options.dead_peer_after);
    finish(std::move(attempt.socket));
  }

  void give_up() {
    if (attempts.empty()) {
      return finish(tl::unexpected(NetError{
          NetFailure::unreachable,
          fmt::format("could not connect to {}: it has no address of the family of this machine",
                      name)}));
    }
    const NetFailure failure = overall_failure(attempts);
    const bool refused_by_all = std::ranges::all_of(
        attempts, [](const auto& one) { return !one->pending && one->error == ECONNREFUSED; });
    finish(tl::unexpected(NetError{failure,
                                   fmt::format("could not connect to {}: {}; {}", name,
                                               outcomes(name, attempts), next_step(failure)),
                                   refused_by_all}));
  }

  void finish(NetResult<TcpSocket> result) {
    const ConnectCallback call = std::exchange(callback, nullptr);
    stop();
    if (call) call(std::move(result));
  }

  // Cancelled operations still complete, with `callback` empty, and own this object until then.
  void stop() {
    callback = nullptr;
    next.cancel();
    limit.cancel();
    boost::system::error_code ignored;
    for (const auto& attempt : attempts)
      attempt->socket.close(ignored);
  }

  boost::asio::io_context& io;
  std::string name;
  ConnectOptions options;
  ConnectCallback callback;
  Deadline deadline;
  boost::asio::steady_timer next;
  boost::asio::steady_timer limit;
  Resolver resolver;
  std::vector<SocketAddress> todo;
  std::vector<std::unique_ptr<Attempt>> attempts;
};

Connecting handle_of(const std::shared_ptr<ConnectState>& state) {
  return Connecting(state.get(), [state](void*) { state->stop(); });
}

}  // namespace

Connecting connect_any(boost::asio::io_context& io, const std::string& host, uint16_t port,
                       Deadline deadline, ConnectOptions options, ConnectCallback callback) {
  const bool bare_v6 = host.find(':') != std::string::npos && !host.starts_with('[');
  const std::string name =
      bare_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
  const auto state =
      std::make_shared<ConnectState>(io, name, deadline, std::move(options), std::move(callback));
  state->resolver.resolve(host, port, deadline, [weak = std::weak_ptr(state)](auto addresses) {
    const auto self = weak.lock();
    if (!self || !self->callback) return;
    if (!addresses) return self->finish(tl::unexpected(addresses.error()));
    self->start(*addresses);
  });
  return handle_of(state);
}

Connecting connect_any(boost::asio::io_context& io, const std::string& name,
                       const std::vector<SocketAddress>& addresses, Deadline deadline,
                       ConnectOptions options, ConnectCallback callback) {
  const auto state =
      std::make_shared<ConnectState>(io, name, deadline, std::move(options), std::move(callback));
  boost::asio::post(io, [state, addresses] {
    if (state->callback) state->start(addresses);
  });
  return handle_of(state);
}

NetResult<int> connect_blocking(const std::string& host, uint16_t port, Deadline deadline,
                                ConnectOptions options) try {
  boost::asio::io_context io(1);
  NetResult<int> result = -1;
  const Connecting connecting = connect_any(io, host, port, deadline, std::move(options),
                                            [&](NetResult<TcpSocket> connected) {
                                              if (!connected) {
                                                result = tl::unexpected(connected.error());
                                                return;
                                              }
                                              connected->native_non_blocking(true);
                                              result = connected->release();
                                            });
  io.run();
  CHECK(!result || *result >= 0);
  return result;
} catch (const boost::system::system_error& error) {
  // Creating the io_context needs descriptors too.
  const NetFailure failure =
      is_out_of_descriptors(error.code().value()) ? NetFailure::exhausted : NetFailure::unreachable;
  return tl::unexpected(
      NetError{failure, fmt::format("could not connect to {}:{}: {}; {}", host, port,
                                    error.code().message(), next_step(failure))});
}

void set_connection_options(int fd, Duration dead_peer_after) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (dead_peer_after <= Duration::zero()) return;
  using std::chrono::ceil;
  const auto milliseconds =
      static_cast<unsigned>(ceil<std::chrono::milliseconds>(dead_peer_after).count());
  // The first probe is sent after about half the time, the others in the rest, in whole seconds.
  const int seconds = std::max(1, static_cast<int>(milliseconds / 1000));
  const int idle = std::max(1, seconds / 2);
  const int interval = std::max(1, seconds / 6);
  const int probes = 3;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

}  // namespace muster
