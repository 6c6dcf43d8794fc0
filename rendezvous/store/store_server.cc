#include "rendezvous/store/store_server.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/store/store_calls.h"
#include "rendezvous/store/store_sockets.h"

namespace muster {

using tcpstore::Breach;
using tcpstore::RequestDecoder;

namespace {

constexpr size_t kStoreSendBytes = size_t{256} << 10;
// Length of a turn before other work on the loop runs; only a request of 131,072 keys takes longer.
constexpr auto kStoreTurn = std::chrono::milliseconds{1};
// A client that sends this many requests at once will soon send more.
constexpr uint64_t kPipelined = 4;
// How long to poll after such a burst: kStay that connection (epoll_wait() costs a tenth of kStay),
// then kLinger all (waking up from epoll_wait() takes about kLinger). Without kLinger, 256 ADDs in
// one write take 1.15 times as long on 2 idle cores, and 256 GETs 1.10 times.
constexpr auto kStay = std::chrono::microseconds{5};
constexpr auto kLinger = std::chrono::microseconds{30};
// Largest capacity of the shared answer buffer that is kept for reuse.
constexpr size_t kReplyKept = size_t{16} << 20;
constexpr size_t kStrangersMax = 16;

// Keepalive detects a silent peer after 60 s + 5 x 10 s.
void set_store_socket_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 5);
}

bool has_hung_up(int fd) {
  pollfd look{fd, POLLRDHUP, 0};
  return ::poll(&look, 1, 0) != 0;
}

int new_epoll() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  return fd;
}

uint64_t epoll_tag(uint32_t slot, uint32_t uses) {
  return static_cast<uint64_t>(uses) << 32 | slot;
}

}  // namespace

// Pending data of a connection that does not read its answers or sends many requests at once.
struct StoreServer::Backlog {
  std::string out;
  size_t sent = 0;    // Bytes of `out` already sent.
  std::string input;  // Bytes read, but not served until `out` is sent.
};

struct StoreServer::Connection {
  int fd = -1;  // -1: the slot is free.
  uint32_t slot = 0;
  uint32_t uses = 0;    // Uses of the slot so far: identifies late events of earlier ones.
  bool greedy = false;  // True if its last visit used up its share.
  bool queued = false;  // True while it is in the queue of order_.
  RequestDecoder decoder;
  std::unique_ptr<Backlog> backlog;
  size_t held = 0;  // Its share of held_bytes_.
  Place place;
};

StoreServer::StoreServer(boost::asio::io_context& io, Options options)
    : io_(io),
      options_(std::move(options)),
      epoll_(io, new_epoll()),
      handshake_timer_(io),
      scratch_(std::make_unique_for_overwrite<char[]>(ReadyOrder::kShareMax)),
      alive_(std::make_shared<bool>(true)) {
  arm();
}

StoreServer::~StoreServer() {
  close();
  *alive_ = false;
}

void StoreServer::open(uint64_t epoch) {
  close();
  epoch_ = epoch;
  StoreMachine::Options machine = options_.machine;
  machine.hash_seed = random_value<uint64_t>();
  machine_ = std::make_unique<StoreMachine>(machine);
}

void StoreServer::close() {
  for (const auto& connection : connections_) {
    if (connection->fd >= 0) drop(*connection);
  }
  connections_.clear();
  free_slots_.clear();
  undecided_.clear();
  order_ = ReadyOrder();
  machine_.reset();
  epoch_.reset();
  handshake_timer_.cancel();
  handshake_armed_ = kNever;
}

void StoreServer::put(std::string_view key, std::string_view value) {
  if (machine_ && machine_->put(StoreKeys().full(key), value, effects_)) wake_others();
}

void StoreServer::set_allowed(std::optional<std::vector<Network>> allowed) {
  allowed_ = std::move(allowed);
  std::erase_if(undecided_, [this](const auto& one) { return !is_allowed(one.second.fd.get()); });
  for (const auto& connection : connections_) {
    if (connection->fd >= 0 && !is_allowed(connection->fd)) drop(*connection);
  }
}

bool StoreServer::is_allowed(int fd) {
  if (!allowed_) return true;
  const SocketAddress peer = remote_address_of(fd);
  if (peer.port == 0) return false;  // Already gone.
  const auto holds_it = [&](const Network& network) { return network.contains(peer.ip); };
  if (std::any_of(allowed_->begin(), allowed_->end(), holds_it)) return true;
  counters_.refused++;
  report_stranger(peer.ip);
  return false;
}

void StoreServer::report_stranger(const IpAddress& address) {
  if (strangers_.size() >= kStrangersMax || !strangers_.insert(address).second) return;
  if (options_.on_refused) options_.on_refused(address);
}

void StoreServer::adopt(int fd, std::string_view already_read, Place place) {
  if (!machine_) counters_.refused_closed++;
  if (!machine_ || !is_allowed(fd)) {
    ::close(fd);
  } else if (options_.examine) {
    const uint64_t client = ++last_client_;
    undecided_.emplace(client,
                       Undecided{UniqueFd(fd), std::string(already_read), std::move(place)});
    options_.examine(fd, client);
  } else {
    admit(fd, already_read, std::move(place));
  }
}

bool StoreServer::decide(uint64_t client, bool may_come) {
  auto found = undecided_.extract(client);
  if (found.empty()) return false;
  Undecided& one = found.mapped();
  const bool is_there = may_come || !has_hung_up(one.fd.get());
  if (may_come) {
    admit(one.fd.release(), one.already_read, std::move(one.place));
  } else {
    counters_.refused++;
  }
  return is_there;
}

// REQUIRES: a store is open.
void StoreServer::admit(int fd, std::string_view already_read, Place place) {
  store_socket_opened(fd);
  set_store_socket_options(fd);
  Connection& connection = free_slot();
  connection.fd = fd;
  connection.place = std::move(place);
  connection.uses++;
  connection.greedy = connection.queued = false;
  connection.decoder = RequestDecoder(options_.request_bytes_max);
  machine_->opened(steady_now(), connection.slot);
  counters_.adopted++;
  counters_.connections++;
  if (!watch(connection, EPOLL_CTL_ADD, EPOLLIN)) return drop(connection);
  arm_handshake_timer();
  settle(connection, already_read.empty() ? Fate::keep : serve(connection, already_read));
}

StoreServer::Connection& StoreServer::free_slot() {
  if (free_slots_.empty()) {
    const auto& made = connections_.emplace_back(std::make_unique<Connection>());
    made->slot = static_cast<uint32_t>(connections_.size() - 1);
    return *made;
  }
  Connection& reused = *connections_[free_slots_.back()];
  free_slots_.pop_back();
  return reused;
}

void StoreServer::drop(Connection& connection) {
  // Removed explicitly: a child between fork and exec may hold a copy of the descriptor.
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, connection.fd, nullptr);
  store_socket_closing(connection.fd);
  ::close(connection.fd);
  connection.fd = -1;
  connection.decoder = RequestDecoder();
  connection.backlog.reset();
  connection.place.reset();
  held_bytes_ -= std::exchange(connection.held, 0);
  machine_->closed(connection.slot);
  free_slots_.push_back(connection.slot);
  counters_.connections--;
}

bool StoreServer::watch(const Connection& connection, int operation, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = epoll_tag(connection.slot, connection.uses);
  return ::epoll_ctl(epoll_.native_handle(), operation, connection.fd, &event) == 0;
}

void StoreServer::arm() {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this, alive = alive_](boost::system::error_code error) {
                      if (!error && *alive) turn();
                    });
}

void StoreServer::turn() {
  const auto until = std::chrono::steady_clock::now() + kStoreTurn;
  order_.begin_turn();
  while (step() || is_lingering()) {
    if (std::chrono::steady_clock::now() < until) continue;
    boost::asio::post(io_, [this, alive = alive_] {
      if (*alive) turn();
    });
    return;
  }
  arm();
}

bool StoreServer::is_lingering() const {
  return steady_now() < linger_until_;
}

// Makes one visit, or polls for ready connections. Returns false if there is nothing to do.
bool StoreServer::step() {
  const std::optional<ReadyOrder::Visit> visit = order_.next();
  if (!visit) {
    return (order_.worth_asking(counters_.requests) || is_lingering()) && look_who_is_ready();
  }
  Connection* const connection = find(visit->tag);
  if (connection == nullptr) return true;
  if (visit->from_batch && connection->greedy) {
    if (!std::exchange(connection->queued, true)) order_.queue_up(visit->tag);
    return true;
  }
  connection->greedy = connection->queued = false;
  settle(*connection,
         connection->backlog ? on_writable(*connection) : on_readable(*connection, visit->share));
  return true;
}

bool StoreServer::look_who_is_ready() {
  std::array<epoll_event, ReadyOrder::kBatchMax> events;
  const int ready =
      ::epoll_wait(epoll_.native_handle(), events.data(), int{ReadyOrder::kBatchMax}, 0);
  return order_.take_batch(events, static_cast<size_t>(std::max(0, ready)), counters_.requests);
}

// Returns null if the connection is gone.
StoreServer::Connection* StoreServer::find(uint64_t tag) {
  const auto slot = static_cast<uint32_t>(tag);
  if (slot >= connections_.size()) return nullptr;
  Connection& connection = *connections_[slot];
  if (connection.fd < 0 || epoll_tag(slot, connection.uses) != tag) return nullptr;
  return &connection;
}

void StoreServer::settle(Connection& connection, Fate fate) {
  if (fate == Fate::close) {
    drop(connection);
  } else {
    account(connection);
  }
  if (!effects_.woken.empty()) wake_others();
  if (options_.on_waiting && machine_->waiting() > 0) options_.on_waiting();
}

// Keeps reading, up to the share, while a client pipelines: its next requests are in flight.
StoreServer::Fate StoreServer::on_readable(Connection& connection, size_t share) {
  Instant stay_until{};
  for (size_t left = share;;) {
    const ssize_t n = ::recv(connection.fd, scratch_.get(), left, 0);
    if (n < 0 && errno == EAGAIN && steady_now() < stay_until) continue;
    if (n <= 0) {
      const bool later = n < 0 && (errno == EAGAIN || errno == EINTR);
      return later ? Fate::keep : Fate::close;
    }
    const uint64_t before = counters_.requests;
    left -= static_cast<size_t>(n);
    connection.greedy = left == 0;
    const Fate fate = serve(connection, {scratch_.get(), static_cast<size_t>(n)});
    const bool pipelined = counters_.requests - before >= kPipelined;
    if (fate == Fate::close || connection.backlog || left == 0 || !pipelined) return fate;
    stay_until = steady_now() + kStay;
    linger_until_ = stay_until + kLinger;
  }
}

StoreServer::Fate StoreServer::on_writable(Connection& connection) {
  connection.greedy = true;
  Backlog& backlog = *connection.backlog;
  if (const size_t unsent = backlog.out.size() - backlog.sent; unsent > 0) {
    const ssize_t n = ::send(connection.fd, backlog.out.data() + backlog.sent,
                             std::min(unsent, kStoreSendBytes), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? Fate::keep : Fate::close;
    backlog.sent += static_cast<size_t>(n);
    if (backlog.sent < backlog.out.size()) return Fate::keep;
  }
  const std::string input = std::move(backlog.input);
  connection.backlog.reset();
  watch(connection, EPOLL_CTL_MOD, EPOLLIN);
  return serve(connection, input);
}

// Answers everything in `input` with one write. Once the answers reach unsent_bytes_max, they are
// written and the rest of the input waits for another visit.
StoreServer::Fate StoreServer::serve(Connection& connection, std::string_view input) {
  for (;;) {
    const RequestDecoder::Decoded outcome = connection.decoder.next(input, request_);
    if (outcome == RequestDecoder::Decoded::more) return flush(connection);
    std::optional<Breach> breach;
    if (outcome == RequestDecoder::Decoded::breach) {
      breach = connection.decoder.breach();
    } else {
      counters_.requests++;
      breach = machine_->request(connection.slot, request_, effects_);
    }
    if (breach) {
      counters_.breaches[static_cast<size_t>(*breach)]++;
      if (*breach == Breach::store_full && options_.on_full) options_.on_full(connection.fd);
      flush(connection);
      return Fate::close;
    }
    if (effects_.reply.size() >= options_.unsent_bytes_max) return defer(connection, input);
  }
}

StoreServer::Fate StoreServer::defer(Connection& connection, std::string_view input) {
  connection.greedy = true;
  if (flush(connection) == Fate::close) return Fate::close;
  if (input.empty()) return Fate::keep;
  if (!connection.backlog) {
    connection.backlog = std::make_unique<Backlog>();
    watch(connection, EPOLL_CTL_MOD, EPOLLOUT);
  }
  connection.backlog->input = input;
  return Fate::keep;
}

// Leaves effects_.reply empty.
StoreServer::Fate StoreServer::flush(Connection& connection) {
  std::string& reply = effects_.reply;
  if (reply.empty()) return Fate::keep;
  const ssize_t n = ::send(connection.fd, reply.data(), reply.size(), MSG_NOSIGNAL);
  const bool failed = n < 0 && errno != EAGAIN && errno != EINTR;
  const size_t sent = n > 0 ? static_cast<size_t>(n) : 0;
  if (!failed && sent < reply.size()) {
    connection.backlog = std::make_unique<Backlog>(Backlog{std::move(reply), sent, {}});
    watch(connection, EPOLL_CTL_MOD, EPOLLOUT);
    reply = std::string();
  }
  if (reply.capacity() > kReplyKept) {
    reply = std::string();
  } else {
    reply.clear();
  }
  return failed ? Fate::close : Fate::keep;
}

// Writes one byte to each woken client.
void StoreServer::wake_others() {
  wakes_.clear();
  for (const ClientId id : effects_.woken) {
    Connection& connection = *connections_[id];
    if (connection.fd < 0) continue;  // Evicted in the meantime.
    if (connection.backlog) {
      connection.backlog->out.push_back(tcpstore::kReady);
    } else {
      wakes_.push_back({connection.fd, id, WakeFanOut::Result::sent});
    }
  }
  effects_.woken.clear();
  WakeFanOut::send(wakes_, tcpstore::kReady);
  for (const WakeFanOut::Wake& wake : wakes_) {
    if (wake.result == WakeFanOut::Result::sent) continue;
    Connection& connection = *connections_[wake.slot];
    if (wake.result == WakeFanOut::Result::broken) {
      drop(connection);
    } else {
      connection.backlog = std::make_unique<Backlog>(Backlog{{tcpstore::kReady}, 0, {}});
      watch(connection, EPOLL_CTL_MOD, EPOLLOUT);
    }
  }
}

void StoreServer::account(Connection& connection) {
  size_t held = connection.decoder.buffered();
  if (const Backlog* backlog = connection.backlog.get()) {
    held += sizeof *backlog + backlog->out.capacity() + backlog->input.capacity();
  }
  if (held == connection.held) return;
  held_bytes_ += held - connection.held;
  connection.held = held;
  while (held_bytes_ > options_.held_bytes_max)
    evict_largest();
}

// REQUIRES: some connection holds something.
void StoreServer::evict_largest() {
  const auto holds_less = [](const auto& a, const auto& b) { return a->held < b->held; };
  Connection& largest = **std::max_element(connections_.begin(), connections_.end(), holds_less);
  CHECK(largest.fd >= 0 && largest.held > 0);
  counters_.evicted++;
  drop(largest);
}

bool StoreServer::drop_half_open() {
  const std::optional<ClientId> oldest = machine_ ? machine_->oldest_half_open() : std::nullopt;
  if (oldest) drop(*connections_[*oldest]);
  return oldest.has_value();
}

void StoreServer::arm_handshake_timer() {
  const Instant deadline = machine_ ? machine_->next_deadline() : kNever;
  if (deadline == kNever || deadline >= handshake_armed_) return;
  handshake_armed_ = deadline;
  call_at(handshake_timer_, Deadline(deadline.time_since_epoch()), [this, alive = alive_] {
    if (!*alive) return;
    handshake_armed_ = kNever;
    if (machine_) drop_late();
  });
}

void StoreServer::drop_late() {
  std::vector<ClientId> late;
  machine_->expire(steady_now(), late);
  for (const ClientId id : late) {
    counters_.handshake_timeouts++;
    drop(*connections_[id]);
  }
  arm_handshake_timer();
}

std::vector<AwaitedKeys> StoreServer::awaited(const std::vector<std::string>& told) const {
  std::vector<AwaitedKeys> waits;
  if (!machine_) return waits;
  waits = machine_->awaited();
  for_each_client(waits, [this](KeyClient& client) {
    client.address = remote_address_of(connections_[client.connection]->fd).ip;
  });
  for (const std::string& name : told) {
    const auto is_it = [&](const AwaitedKeys& wait) { return wait.keys.front().name == name; };
    if (std::ranges::none_of(waits, is_it))
      waits.push_back({.keys = {{.name = name}}, .waiting = {}, .exists = machine_->has(name)});
  }
  return waits;
}

StoreServer::Counters StoreServer::counters() const {
  Counters counters = counters_;
  counters.held_bytes = held_bytes_;
  if (machine_) {
    counters.keys = machine_->keys();
    counters.waiting = machine_->waiting();
    counters.stored_bytes = machine_->stored_bytes();
  }
  return counters;
}

std::string StoreServer::status() const {
  if (!machine_) return "store closed";
  const std::string waiting =
      undecided_.empty()
          ? ""
          : fmt::format(", {} wait until it is known whose they are", undecided_.size());
  return fmt::format("store of epoch {}: {} connections{}, {}", *epoch_, counters_.connections,
                     waiting, machine_->status());
}

}  // namespace muster
