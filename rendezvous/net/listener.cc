#include "rendezvous/net/listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/first_bytes.h"
#include "rendezvous/net/half_open.h"

namespace muster {
namespace {

using WatchedFd = boost::asio::posix::stream_descriptor;
using ListenClock = std::chrono::steady_clock;

constexpr size_t kStrangersNamed = 16;
constexpr auto kTurn = std::chrono::milliseconds(1);
constexpr auto kShortestPause = std::chrono::milliseconds(1);
constexpr auto kFirstCrowdLine = std::chrono::seconds(1);
constexpr auto kBetweenLines = std::chrono::minutes(1);

struct Unidentified {
  WatchedFd socket;
  std::string bytes;
  SocketAddress peer;
  Deadline deadline;
  Place place;
};

struct Held {
  Caller caller = Caller::agent;
  Arrival arrival;
};

// The connections crowded out since the last message about them.
struct Crowd {
  uint64_t count = 0;
  IpAddress first;
  bool others = false;  // True if some came from other addresses.
  bool line_is_due = false;
};

}  // namespace

// Callbacks of the loop share ownership of this state, so a handler may destroy the Listener
// without freeing the state that a running callback uses.
struct Listener::State : std::enable_shared_from_this<State> {
  State(boost::asio::io_context& loop, ListenOptions how)
      : io(loop), options(std::move(how)), expiry(loop), pause(loop), crowd_line(loop) {
    if (!options.places) options.places = std::make_shared<Places>(Places::kUnlimited);
  }

  void wait_for_connections(WatchedFd& socket) {
    socket.async_wait(WatchedFd::wait_read,
                      [self = shared_from_this(), &socket](boost::system::error_code error) {
                        if (!error && !self->closed) self->accept_batch(socket);
                      });
  }

  // Bounded so that a thousand new connections never keep an established one waiting: the rest make
  // the socket readable again, behind all other pending events.
  void accept_batch(WatchedFd& socket) {
    const auto self = shared_from_this();
    const Deadline end = ListenClock::now() + kTurn;
    for (int i = 0; i < options.accepts_per_turn && !closed && !pausing; ++i) {
      if (!accept_one(socket) || ListenClock::now() >= end) break;
    }
    if (!closed && !pausing) wait_for_connections(socket);
  }

  bool is_crowded() const {
    return options.places->is_full() || half_open.size() >= options.half_open_max;
  }

  // Returns false if there is no place for another connection; accepting then pauses.
  bool may_accept() {
    if (!is_crowded()) return true;
    const auto next = half_open.next_out();
    if (!next) {
      exhaust(
          fmt::format("all {} places for connections are taken: new ones wait; raise the limit "
                      "(ulimit -n)",
                      options.places->max()));
      return false;
    }
    const Instant ripe = next->second.since + options.least_life;
    const Instant now = to_instant(ListenClock::now());
    if (ripe <= now) return true;
    pause_for(std::max<Duration>(ripe - now, kShortestPause));
    return false;
  }

  // Returns true if there may be more.
  bool accept_one(WatchedFd& socket) {
    if (!may_accept()) return false;
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

  // Closes a half-open connection if descriptors are still short after a pause.
  void out_of_descriptors() {
    if (exhausted) crowd_out();
    exhaust("out of file descriptors: new connections wait; raise the limit (ulimit -n)");
  }

  // The connection stays in the backlog and the socket stays readable, so accepting pauses.
  void exhaust(const std::string& message) {
    if (!std::exchange(exhausted, true)) {
      ++counters.exhausted;
      const auto now = ListenClock::now();
      if (handlers.trouble && now >= quiet_until) {
        quiet_until = now + kBetweenLines;
        handlers.trouble(message);
      }
    }
    pause_for(options.exhausted_pause);
  }

  void pause_for(Duration time) {
    if (closed) return;
    pausing = true;
    boost::system::error_code ignored;
    for (const auto& socket : sockets)
      socket->cancel(ignored);
    call_after(pause, time, [self = shared_from_this()] {
      if (self->closed) return;
      self->pausing = false;
      for (const auto& socket : self->sockets)
        self->wait_for_connections(*socket);
    });
  }

  void arrived(int fd, const SocketAddress& peer) {
    set_connection_options(fd, Duration::zero());
    if (is_crowded()) crowd_out();
    const uint64_t id = next_id++;
    const auto now = ListenClock::now();
    WatchedFd socket(io);
    boost::system::error_code refused;
    socket.assign(fd, refused);
    if (refused) {  // the kernel's limit of epoll watches
      ::close(fd);
      return;
    }
    half_open.add(id, peer.ip, to_instant(now));
    unidentified.emplace(id, Unidentified{std::move(socket), "", peer,
                                          now + options.handshake_limit, options.places->take()});
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

  // Reads what is available. Returns true once the connection has left `unidentified`.
  bool identify(uint64_t id) {
    const auto found = unidentified.find(id);
    Unidentified& connection = found->second;
    std::array<char, 4096> buffer;
    const ssize_t n = recv(connection.socket.native_handle(), buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
      ++counters.closed_early;
      forget(id);
      return true;
    }
    connection.bytes.append(buffer.data(), static_cast<size_t>(n));
    const Caller caller = who_calls(connection.bytes, options.agent_magic);
    if (caller == Caller::unknown_yet) return false;
    Arrival arrival{UniqueFd(connection.socket.release()), std::move(connection.bytes),
                    connection.peer, id, std::move(connection.place)};
    unidentified.erase(found);
    if (caller == Caller::agent) {
      half_open.said_agent(id);
    } else if (caller != Caller::store_client || started) {
      half_open.remove(id);
    }
    dispatch(caller, std::move(arrival));
    return true;
  }

  void forget(uint64_t id) {
    unidentified.erase(id);
    half_open.remove(id);
  }

  // Closes the late ones and sets the timer to the next deadline.
  void expire() {
    const auto now = ListenClock::now();
    while (!unidentified.empty() && unidentified.begin()->second.deadline <= now) {
      ++counters.timed_out;
      forget(unidentified.begin()->first);
    }
    if (unidentified.empty()) return;
    call_at(expiry, unidentified.begin()->second.deadline, [self = shared_from_this()] {
      if (!self->closed) self->expire();
    });
  }

  // Closes HalfOpen's choice, also if handed over. Returns false if there is none.
  bool crowd_out() {
    const auto next = half_open.next_out();
    if (!next) return false;
    const uint64_t id = next->first;
    ++counters.crowded_out;
    half_open.remove(id);
    if (unidentified.erase(id) == 0 && held.erase(id) == 0 && handlers.crowded_out)
      handlers.crowded_out(id);
    note_crowd(next->second.address);
    return true;
  }

  // The first message comes after a second, later ones once a minute, each with a count.
  void note_crowd(const IpAddress& address) {
    if (crowd.count++ == 0) crowd.first = address;
    crowd.others = crowd.others || address != crowd.first;
    if (std::exchange(crowd.line_is_due, true)) return;
    say_crowd_after(kFirstCrowdLine);
  }

  void say_crowd_after(Duration time) {
    call_after(crowd_line, time, [self = shared_from_this()] {
      if (self->closed) return;
      const Crowd gone = std::exchange(self->crowd, {});
      if (gone.count == 0) return;
      self->crowd.line_is_due = true;
      self->say_crowd_after(kBetweenLines);
      if (!self->handlers.trouble) return;
      self->handlers.trouble(
          fmt::format("closed {} to port {} from {}{}, to make room for others: they were not "
                      "authenticated yet",
                      counted(gone.count, "connection"), self->endpoints.front().port,
                      gone.first.to_string(), gone.others ? " and other addresses" : ""));
    });
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
      const uint64_t id = arrival.id;
      held.emplace(id, Held{caller, std::move(arrival)});
    }
  }

  void deliver(Caller caller, Arrival arrival) {
    ++(caller == Caller::store_client ? counters.stores : counters.agents);
    if (caller == Caller::store_client) {
      half_open.remove(arrival.id);
      if (handlers.store) handlers.store(std::move(arrival));
      return;
    }
    // Removes the entry when the owner drops the connection.
    arrival.half_open = {nullptr, [weak = weak_from_this(), id = arrival.id](void*) {
                           if (const auto self = weak.lock()) self->half_open.remove(id);
                         }};
    if (handlers.agent) handlers.agent(std::move(arrival));
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
    if (!handlers.stranger || strangers.size() >= kStrangersNamed) return;
    if (strangers.insert(machine_of(peer.ip)).second)
      handlers.stranger(Stranger{peer, description});
  }

  void start(ListenHandlers given) {
    const auto self = shared_from_this();
    handlers = std::move(given);
    started = true;
    std::map<uint64_t, Held> early = std::exchange(held, {});
    for (auto& [id, one] : early) {
      if (!closed) deliver(one.caller, std::move(one.arrival));
    }
  }

  void close() {
    if (closed) return;
    closed = true;
    expiry.cancel();
    pause.cancel();
    crowd_line.cancel();
    // The sockets are closed, not destroyed: a running callback may hold a reference to one.
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
  uint64_t next_id = 1;
  std::map<uint64_t, Held> held;  // Identified before start().
  // Connections in `unidentified` and `held`, and agents handed over but not proved().
  HalfOpen half_open;
  Crowd crowd;
  boost::asio::steady_timer expiry;
  boost::asio::steady_timer pause;
  boost::asio::steady_timer crowd_line;
  bool exhausted = false;
  Deadline quiet_until{};  // No message about exhaustion before this.
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
  state->options.places->on_make_room([weak = std::weak_ptr(state)] {
    const auto self = weak.lock();
    return self && self->crowd_out();
  });
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
const std::shared_ptr<Places>& Listener::places() const {
  return state_->options.places;
}
void Listener::proved(uint64_t id) {
  state_->half_open.remove(id);
}
void Listener::on_probe(std::function<bool(std::string_view)> is_ours) {
  state_->probe_is_ours = std::move(is_ours);
}

}  // namespace muster
