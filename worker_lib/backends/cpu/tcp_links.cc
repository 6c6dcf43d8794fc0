#include "worker_lib/backends/cpu/tcp_links.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <sys/socket.h>

namespace muster::worker {
namespace {

// Connections to a peer that may end during the handshake; one more is an error.
constexpr int kTriesMax = 3;

bool is_not_now(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

timespec time_left(Deadline until) {
  const auto now = std::chrono::steady_clock::now();
  // Capped, since `until` may be Deadline::max(); sleep() may return early.
  const auto left =
      std::min<std::chrono::nanoseconds>(until - std::min(until, now), std::chrono::hours{1});
  return {.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000),
          .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};
}

size_t at(int rank) {
  return static_cast<size_t>(rank);
}

}  // namespace

Outcome<std::unique_ptr<SocketLinks>> SocketLinks::make(Purpose purpose, const Members& members,
                                                        const std::vector<ListenAddress>& addresses,
                                                        const std::string& secret) {
  std::unique_ptr<SocketLinks> links(new SocketLinks(purpose, members, addresses, secret));
  links->event_ = open_event_fd();
  if (!links->event_) return socket_failure("make an eventfd", errno);
  return links;
}

SocketLinks::SocketLinks(Purpose purpose, const Members& members,
                         const std::vector<ListenAddress>& addresses, std::string secret)
    : purpose_(purpose),
      members_(members),
      addresses_(addresses),
      secret_(std::move(secret)),
      outs_(addresses.size()),
      ins_(addresses.size()) {}

void SocketLinks::deliver(int from, Socket connection) {
  {
    const std::lock_guard lock(mutex_);
    delivered_.emplace_back(from, std::move(connection));
  }
  has_delivered_.store(true, std::memory_order_release);
  wake();
}

void SocketLinks::take_delivered() {
  if (!has_delivered_.exchange(false, std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  for (auto& [from, connection] : delivered_) {
    In& in = ins_[at(from)];
    // A peer connects once: a second connection is an error and would interleave streams.
    if (!in.socket) in.socket = std::move(connection);
  }
  delivered_.clear();
}

Failure SocketLinks::lost(int peer, int error) const {
  if (is_out_of_descriptors(error) || error == ENOMEM || error == ENOBUFS)
    return {ErrorCode::system,
            fmt::format("no connection to {}: {}", describe(members_[peer]), std::strerror(error)),
            {}};
  return {
      ErrorCode::peer_failed,
      fmt::format("{} closed its connection ({})", describe(members_[peer]), std::strerror(error)),
      {members_[peer].rank}};
}

// Returns false if not connected yet.
Outcome<bool> SocketLinks::open(int peer, Out& out) {
  const ListenAddress& address = addresses_[at(peer)];
  const auto unreachable = [&](int error) {
    return failed(
        is_refusal(error) || error == EHOSTUNREACH ? ErrorCode::peer_failed : ErrorCode::system,
        fmt::format("{} cannot be reached at {}: {}", describe(members_[peer]),
                    address.tcp.to_string(), std::strerror(error)),
        {members_[peer].rank});
  };
  if (!out.socket) {
    Dialled begun{{}, EAGAIN};
    // Uses TCP if the Unix socket's queue is full (EAGAIN).
    if (members_[peer].node == members_.self().node) begun = dial_local(address.local);
    if (begun.error != 0) begun = dial(address.tcp);
    if (begun.error != 0 && begun.error != EINPROGRESS) return unreachable(begun.error);
    out.socket = std::move(begun.socket);
    out.connecting = true;
  }
  pollfd state{out.socket.get(), POLLOUT, 0};
  if (poll(&state, 1, 0) <= 0) return false;  // Includes an interrupting signal.
  if (const int error = dial_error(out.socket.get())) return unreachable(error);
  out.connecting = false;
  fit_buffers(out.socket.get());
  return true;
}

void SocketLinks::begin_greeting(int peer, Out& out) const {
  LinkHello hello;
  hello.purpose = static_cast<uint8_t>(purpose_);
  hello.from = members_.me;
  hello.nonce = random_value<LinkNonce>();
  out.terms = {link_purpose(hello, addresses_[at(peer)]), hello.nonce, {}};
  out.output.assign(reinterpret_cast<const char*>(&hello), sizeof hello);
}

// Receives the listener's next message. False: not there yet, or the socket was closed for a retry.
Outcome<bool> SocketLinks::hear(int peer, Out& out) const {
  char admitted = 0;
  char* const bytes =
      out.is_proved ? &admitted : reinterpret_cast<char*>(&out.challenge) + out.heard;
  const size_t size = out.is_proved ? 1 : sizeof out.challenge - out.heard;
  const ssize_t got = recv(out.socket.get(), bytes, size, MSG_DONTWAIT);
  if (got < 0 && is_not_now(errno)) return false;
  if (got <= 0) {
    // The listener closes slow candidates, and this process may have been stopped meanwhile.
    const int error = got < 0 ? errno : ECONNRESET;
    if (out.tries >= kTriesMax) return tl::unexpected(lost(peer, error));
    Out again;
    again.tries = out.tries + 1;
    out = std::move(again);
    return false;
  }
  if (out.is_proved) return out.is_open = admitted == kAdmitted;
  out.heard += static_cast<size_t>(got);
  return out.heard == sizeof out.challenge ? prove(peer, out) : false;
}

Outcome<bool> SocketLinks::prove(int peer, Out& out) const {
  out.terms.listener = out.challenge.nonce;
  if (!same_mac(out.challenge.proof, listener_proof(secret_, out.terms))) {
    return failed(ErrorCode::peer_failed,
                  fmt::format("what answers at {}, the address of {}, does not belong to the job",
                              addresses_[at(peer)].tcp.to_string(), describe(members_[peer])),
                  {members_[peer].rank});
  }
  out.output = raw_bytes(dialler_proof(secret_, out.terms));
  out.is_proved = true;
  return true;
}

// Continues the handshake. Returns false if it is not over.
Outcome<bool> SocketLinks::greet(int peer, Out& out) {
  while (!out.is_open) {
    if (!out.socket || out.connecting) {
      const Outcome<bool> opened = open(peer, out);
      if (!opened || !*opened) return opened;
      begin_greeting(peer, out);
    }
    if (!out.output.empty()) {
      const ssize_t sent =
          send(out.socket.get(), out.output.data(), out.output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && is_not_now(errno)) return false;
      out.output.erase(0, sent < 0 ? out.output.size() : static_cast<size_t>(sent));
      if (!out.output.empty()) return false;  // Empty after an error: hear() then finds the cause.
    }
    const Outcome<bool> heard = hear(peer, out);
    if (!heard || (!*heard && out.socket)) return heard;
  }
  return true;
}

Outcome<size_t> SocketLinks::write(int peer, std::span<const iovec> parts) {
  Out& out = outs_[at(peer)];
  if (!out.is_open) [[unlikely]] {
    const Outcome<bool> greeted = greet(peer, out);
    if (!greeted) return tl::unexpected(greeted.error());
    if (!*greeted) return 0;
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t sent = sendmsg(out.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (is_not_now(errno)) return 0;
  return tl::unexpected(lost(peer, errno));
}

Outcome<size_t> SocketLinks::read(int peer, std::span<const iovec> parts) {
  take_delivered();
  In& in = ins_[at(peer)];
  if (!in.socket || in.ended) return 0;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t got = recvmsg(in.socket.get(), &message, MSG_DONTWAIT);
  if (got > 0) return static_cast<size_t>(got);
  if (got < 0 && is_not_now(errno)) return 0;
  in.ended = true;
  if (got == 0) return 0;
  return tl::unexpected(lost(peer, errno));
}

size_t SocketLinks::peek(int peer, std::span<std::byte> to) {
  take_delivered();
  const In& in = ins_[at(peer)];
  if (!in.socket || in.ended) return 0;
  const ssize_t got = recv(in.socket.get(), to.data(), to.size(), MSG_PEEK | MSG_DONTWAIT);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

void SocketLinks::arm(const Interest& interest) {
  polled_.assign(1, {event_.get(), POLLIN, 0});
  for (const int peer : interest.reading) {
    const In& in = ins_[at(peer)];
    if (in.socket && !in.ended) polled_.push_back({in.socket.get(), POLLIN, 0});
  }
  for (const int peer : interest.writing) {
    const Out& out = outs_[at(peer)];
    // A handshake with nothing to send waits for the listener's message.
    const bool listens = !out.connecting && !out.is_open && out.output.empty();
    if (out.socket)
      polled_.push_back({out.socket.get(), static_cast<short>(listens ? POLLIN : POLLOUT), 0});
  }
}

void SocketLinks::sleep(Deadline until, bool) {
  const timespec left = time_left(until);
  ppoll(polled_.data(), polled_.size(), &left, nullptr);
  if (polled_[0].revents != 0) drain_event(event_.get());
}

}  // namespace muster::worker
