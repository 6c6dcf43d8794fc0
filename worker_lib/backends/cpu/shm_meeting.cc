#include "worker_lib/backends/cpu/shm_meeting.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/tcp_acceptor.h"
#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/backends/store_exchange.h"
#include "worker_lib/stream_socket.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often a wait for a peer checks whether to give up.
constexpr milliseconds kLookEvery{50};

constexpr std::chrono::seconds kStrangerLimit{1};

tl::unexpected<Failure> socket_failed(const char* what) {
  return failed(ErrorCode::system, fmt::format("cannot {} a Unix socket between the ranks of this "
                                               "node: {}",
                                               what, std::strerror(errno)));
}

// Returns false at the deadline.
Outcome<bool> poll_for(int fd, short events, Deadline deadline, const Interrupted& interrupted) {
  for (;;) {
    if (interrupted) {
      if (std::optional<Failure> failure = interrupted()) return tl::unexpected(*failure);
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const auto wait = std::clamp(left, milliseconds{0}, kLookEvery);
    pollfd waiting{fd, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(wait.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return socket_failed("wait for");
    if (left <= milliseconds{0}) return false;
  }
}

// The giver's message: one byte, since a message with a descriptor must not be empty (unix(7)).
bool send_fd(int socket, int fd) {
  return send_with_fd(socket, std::string_view("f"), fd) == 1;
}

// Returns an invalid descriptor on failure, with EMFILE in errno if this process is out of them.
UniqueFd receive_fd(int socket) {
  char byte = 0;
  UniqueFd fd;
  errno = 0;
  return receive_with_fd(socket, {&byte, 1}, fd) == 1 ? std::move(fd) : UniqueFd();
}

tl::unexpected<Failure> did_not_come(const Members& local, const std::vector<int>& missing) {
  return tl::unexpected(absent_members(local, missing, "in time to share this node's memory"));
}

}  // namespace

Outcome<FdGiver> FdGiver::listen() {
  std::string name = random_socket_name();
  UniqueFd listener = listen_local(name, SOCK_SEQPACKET);
  if (!listener) return socket_failed("listen on");
  return FdGiver(std::move(listener), std::move(name));
}

Outcome<> FdGiver::give(int fd, const Members& local, Deadline deadline,
                        const Interrupted& interrupted) {
  std::vector<int> missing;
  for (int rank = 0; rank < local.size(); ++rank) {
    if (rank != local.me) missing.push_back(rank);
  }
  while (!missing.empty()) {
    Outcome<bool> polled = poll_for(listener_.get(), POLLIN, deadline, interrupted);
    if (!polled) return tl::unexpected(std::move(polled.error()));
    if (!*polled) return did_not_come(local, missing);
    int error = 0;
    const UniqueFd taker = accept_next(listener_.get(), error);
    if (error != 0) return socket_failed("accept on");
    if (!taker || !is_own_user(taker.get())) continue;
    // The limit is for unrelated processes of the same user: a taker sends its index at once.
    polled = poll_for(taker.get(), POLLIN, std::min(deadline, steady_clock::now() + kStrangerLimit),
                      interrupted);
    if (!polled) return tl::unexpected(std::move(polled.error()));
    int32_t index = -1;
    if (!*polled || recv(taker.get(), &index, sizeof index, MSG_DONTWAIT) != sizeof index) continue;
    const auto found = std::find(missing.begin(), missing.end(), index);
    if (found != missing.end() && send_fd(taker.get(), fd)) missing.erase(found);
  }
  return Done{};
}

Outcome<UniqueFd> take_fd(const std::string& name, const Members& local, Deadline deadline,
                          const Interrupted& interrupted) {
  if (name.empty() || name.size() > 100) {
    return failed(ErrorCode::rendezvous,
                  fmt::format("{} published no usable name for its socket", describe(local[0])));
  }
  // Connects without a retry: the listener's backlog has room for all ranks of a node.
  const auto [connection, error] = dial_local(name, SOCK_SEQPACKET);
  if (!connection) return socket_failed("make");
  if (error != 0) {
    return failed(ErrorCode::peer_failed,
                  fmt::format("cannot reach {} on this node to share its memory: {}",
                              describe(local[0]), std::strerror(error)),
                  {local[0].rank});
  }
  if (!is_own_user(connection.get())) {
    return failed(
        ErrorCode::system,
        fmt::format(
            "{} runs as another user; ranks of one node must run as the same user to share memory",
            describe(local[0])));
  }
  const auto index = static_cast<int32_t>(local.me);
  const bool is_sent = send(connection.get(), &index, sizeof index, MSG_NOSIGNAL) == sizeof index;
  // A giver that has died since is reported below, as one that hands nothing over.
  if (!is_sent && errno != EPIPE && errno != ECONNRESET) return socket_failed("write to");
  Outcome<bool> polled = poll_for(connection.get(), POLLIN, deadline, interrupted);
  if (!polled) return tl::unexpected(std::move(polled.error()));
  UniqueFd fd;
  if (*polled) fd = receive_fd(connection.get());
  if (fd.get() < 0) {
    if (*polled && errno == EMFILE) return socket_failed("take memory from");
    return failed(
        *polled ? ErrorCode::peer_failed : ErrorCode::timeout,
        fmt::format(
            "{} did not hand over this node's shared memory; check whether it is still running",
            describe(local[0])),
        {local[0].rank});
  }
  return fd;
}

Outcome<std::shared_ptr<Segment>> meet_in_segment(GroupSetup& setup, const Members& local,
                                                  const SegmentShape& shape) {
  CHECK(shape.ranks == local.size());
  const std::string key = fmt::format("segment/{}", local[0].rank.value);
  if (local.me == 0) {
    Outcome<std::shared_ptr<Segment>> segment = Segment::create(shape);
    if (!segment) return segment;
    Outcome<FdGiver> giver = FdGiver::listen();
    if (!giver) return tl::unexpected(std::move(giver.error()));
    const Result<Nothing> told = setup.store.set(key, giver->name());
    if (!told) return failed(ErrorCode::rendezvous, told.error().message);
    const Outcome<> given = giver->give((*segment)->fd(), local, setup.deadline, setup.interrupted);
    if (!given) return tl::unexpected(given.error());
    (*segment)->close_fd();
    return segment;
  }
  const Outcome<bool> there = wait_in_store(setup, {key});
  if (!there) return tl::unexpected(there.error());
  if (!*there) return did_not_come(local, {0});
  const Result<std::string> name = setup.store.get(key);
  if (!name) return failed(ErrorCode::rendezvous, name.error().message);
  Outcome<UniqueFd> fd = take_fd(*name, local, setup.deadline, setup.interrupted);
  if (!fd) return tl::unexpected(std::move(fd.error()));
  return Segment::open(fd->get(), shape);
}

}  // namespace muster::worker
