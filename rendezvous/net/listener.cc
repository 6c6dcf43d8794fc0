#include "rendezvous/net/listener.h"

#include <array>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/first_bytes.h"
#include "rendezvous/net/listening_socket.h"

namespace muster {
namespace {

using WatchedFd = boost::asio::posix::stream_descriptor;
using ListenClock = std::chrono::steady_clock;

constexpr size_t kStrangersRemembered = 1024;

struct Unidentified {
  WatchedFd socket;
  std::string bytes;
  SocketAddress peer;
  Deadline deadline;
};

}  // namespace

// Callbacks of the loop share ownership of this state, so a handler may close or destroy the
// Listener without freeing the state that a running callback uses.
struct Listener::State : std::enable_shared_from_this<State> {
  State(boost::asio::io_context& loop, ListenOptions how)
      : io(loop), options(std::move(how)), expiry(loop), pause(loop) {}

  void wait_for_connections(WatchedFd& socket) {
    socket.async_wait(WatchedFd::wait_read,
                      [self = shared_from_this(), &socket](boost::system::error_code error) {
                        if (!error && !self->closed) self->accept_batch(socket);
                      });
  }

  // The batch is bounded so that a thousand new connections never keep an established one waiting:
  // the rest make the socket readable again, behind all other pending events.
  void accept_batch(WatchedFd& socket) {
    const auto self = shared_from_this();
    for (int i = 0; i < options.accepts_per_turn && !closed && !pausing; ++i) {
      if (!accept_one(socket)) break;
    }
    if (!closed && !pausing) wait_for_connections(socket);
  }

  // Returns true if there may be more.
  bool accept_one(WatchedFd& socket) {
    sockaddr_storage raw{};
    socklen_t length = sizeof raw;
    auto* const peer = reinterpret_cast<sockaddr*>(&raw);
    const int fd = accept4(socket.native_handle(), peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      exhausted = false;
      ++counters.accepted;
      arrived(fd, SocketAddress::from_sockaddr(peer).value_or(SocketAddress{}));
      return true;
    }
    if (errno == EAGAIN) return false;
    if (concerns_one_connection(errno)) return true;
    out_of_descriptors();
    return false;
  }

  // The connection stays in the backlog and loses nothing, but keeps the socket readable, so
  // accepting pauses for a while. If descriptors are still short after that, the oldest
  // unidentified connection is closed.
  void out_of_descriptors() {
    if (!exhausted) {
      ++counters.exhausted;
      if (handlers.trouble)
        handlers.trouble(
            "out of file descriptors: new connections wait; raise the limit (ulimit -n)");
    } else if (!unidentified.empty()) {
      drop_oldest();
    }
    if (closed) return;
    exhausted = true;
    pausing = true;
    boost::system::error_code ignored;
    for (const auto& socket : sockets)
      socket->cancel(ignored);
    pause.expires_after(options.exhausted_pause);
    pause.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (error || self->closed) return;
      self->pausing = false;
      for (const auto& socket : self->sockets)
        self->wait_for_connections(*socket);
    });
  }

  void arrived(int fd, const SocketAddress& peer) {
    set_connection_options(fd, Duration::zero());
    if (unidentified.size() >= options.unidentified_max) drop_oldest();
    const uint64_t id = next_id++;
    const Deadline deadline = ListenClock::now() + options.handshake_limit;
    WatchedFd socket(io);
    boost::system::error_code refused;
    socket.assign(fd, refused);
    if (refused) {  // the kernel's limit of epoll watches
      ::close(fd);
      return;
    }
    unidentified.emplace(id, Unidentified{std::move(socket), "", peer, deadline});
    if (identify(id)) return;
    wait_for_bytes(id);
    if (unidentified.size() == 1) expire();
  }

  void wait_for_bytes(uint64_t id) {
    const auto found = unidentified.find(id);
    found->second.socket.async_wait(
        WatchedFd::wait_read, [self = shared_from_this(), id](boost::system::error_code error) {
          if (error || self->closed || !self->unidentified.contains(id)) return;
          if (!self->identify(id)) self->wait_for_bytes(id);
        });
  }

  // Reads what is available. True once the connection has left `unidentified`: handed over or
  // closed.
  bool identify(uint64_t id) {
    const auto found = unidentified.find(id);
    Unidentified& connection = found->second;
    std::array<char, 4096> buffer;
    const ssize_t n = recv(connection.socket.native_handle(), buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
      ++counters.closed_early;
      unidentified.erase(found);
      return true;
    }
    connection.bytes.append(buffer.data(), static_cast<size_t>(n));
    const Caller caller = who_calls(connection.bytes, options.agent_magic);
    if (caller == Caller::unknown_yet) return false;
    Arrival arrival{UniqueFd(connection.socket.release()), std::move(connection.bytes),
                    connection.peer};
    unidentified.erase(found);
    dispatch(caller, std::move(arrival));
    return true;
  }

  // Closes those that are late, and waits for the next one's deadline.
  void expire() {
    const auto now = ListenClock::now();
    while (!unidentified.empty() && unidentified.begin()->second.deadline <= now) {
      ++counters.timed_out;
      unidentified.erase(unidentified.begin());
    }
    if (unidentified.empty()) return;
    expiry.expires_at(unidentified.begin()->second.deadline);
    expiry.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (!error && !self->closed) self->expire();
    });
  }

  void drop_oldest() {
    ++counters.crowded_out;
    unidentified.erase(unidentified.begin());
  }

  void dispatch(Caller caller, Arrival arrival) {
    if (caller == Caller::stranger) {
      ++counters.strangers;
      report_stranger(arrival.peer, describe_stranger(arrival.bytes));
    } else if (caller == Caller::probe) {
      ++counters.probes;
      answer_probe(arrival);
    } else if (started) {
      deliver(caller, std::move(arrival));
    } else {
      if (held.size() >= options.held_max) {
        ++counters.crowded_out;
        held.erase(held.begin());
      }
      held.emplace_back(caller, std::move(arrival));
    }
  }

  void deliver(Caller caller, Arrival arrival) {
    ++(caller == Caller::store_client ? counters.stores : counters.agents);
    const auto& handler = caller == Caller::store_client ? handlers.store : handlers.agent;
    if (handler) handler(std::move(arrival));
  }

  // The one-byte answer always fits into the empty send buffer of a new connection.
  void answer_probe(const Arrival& arrival) {
    const std::string_view nonce =
        std::string_view(arrival.bytes).substr(kProbeMagic.size(), kNonceBytes);
    const bool ours = probe_is_ours && probe_is_ours(nonce);
    const char answer = ours ? kProbeIsOurs : kProbeIsNotOurs;
    static_cast<void>(send(arrival.fd.get(), &answer, 1, MSG_NOSIGNAL));
  }

  void report_stranger(const SocketAddress& peer, const std::string& description) {
    if (!handlers.stranger || strangers.size() >= kStrangersRemembered) return;
    if (strangers.insert(peer.ip).second) handlers.stranger(Stranger{peer, description});
  }

  void start(ListenHandlers given) {
    const auto self = shared_from_this();
    handlers = std::move(given);
    started = true;
    std::vector<std::pair<Caller, Arrival>> early = std::exchange(held, {});
    for (auto& [caller, arrival] : early) {
      if (!closed) deliver(caller, std::move(arrival));
    }
  }

  void close() {
    if (closed) return;
    closed = true;
    expiry.cancel();
    pause.cancel();
    // The objects are kept: a running callback may hold a reference to one.
    boost::system::error_code ignored;
    for (const auto& socket : sockets)
      socket->close(ignored);
    unidentified.clear();
    held.clear();
  }

  boost::asio::io_context& io;
  ListenOptions options;
  std::vector<std::unique_ptr<WatchedFd>> sockets;
  std::vector<SocketAddress> endpoints;
  // Ordered by arrival: the first is the oldest and the next to expire.
  std::map<uint64_t, Unidentified> unidentified;
  uint64_t next_id = 0;
  std::vector<std::pair<Caller, Arrival>> held;
  boost::asio::steady_timer expiry;
  boost::asio::steady_timer pause;
  bool exhausted = false;
  bool pausing = false;
  bool started = false;
  bool closed = false;
  ListenHandlers handlers;
  std::function<bool(std::string_view)> probe_is_ours;
  std::set<IpAddress> strangers;
  ListenCounters counters;
};

tl::expected<std::unique_ptr<Listener>, ListenError> Listener::open(
    boost::asio::io_context& io, const std::vector<SocketAddress>& addresses,
    ListenOptions options) {
  CHECK(!addresses.empty());
  auto bound = listen_on(addresses);
  if (!bound) return tl::unexpected(bound.error());
  const auto state = std::make_shared<State>(io, std::move(options));
  for (ListeningSocket& one : *bound) {
    state->sockets.push_back(std::make_unique<WatchedFd>(io, one.fd.release()));
    state->endpoints.push_back(one.address);
    state->wait_for_connections(*state->sockets.back());
  }
  return std::unique_ptr<Listener>(new Listener(state));
}

Listener::Listener(std::shared_ptr<State> state) : state_(std::move(state)) {}
Listener::~Listener() {
  state_->close();
}

void Listener::start(ListenHandlers handlers) {
  state_->start(std::move(handlers));
}
void Listener::close() {
  state_->close();
}
uint16_t Listener::port() const {
  return state_->endpoints.front().port;
}
SocketAddress Listener::local_endpoint() const {
  return state_->endpoints.front();
}
std::vector<SocketAddress> Listener::local_endpoints() const {
  return state_->endpoints;
}
const ListenCounters& Listener::counters() const {
  return state_->counters;
}
size_t Listener::unidentified() const {
  return state_->unidentified.size();
}
void Listener::on_probe(std::function<bool(std::string_view)> is_ours) {
  state_->probe_is_ours = std::move(is_ours);
}

}  // namespace muster
