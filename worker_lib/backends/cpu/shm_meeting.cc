#include "worker_lib/backends/cpu/shm_meeting.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "rendezvous/net/abstract_address.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often a wait for a peer checks whether to give up.
constexpr milliseconds kLookEvery{50};

constexpr std::chrono::seconds kStrangerLimit{1};

Outcome<std::string> random_name() {
  unsigned char bits[16];
  if (getrandom(bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    return failed(ErrorCode::system, "cannot get random bytes for the name of a socket");
  }
  std::string name = "muster-";
  for (const unsigned char byte : bits)
    name += fmt::format("{:02x}", byte);
  return name;
}

tl::unexpected<Failure> socket_failed(const char* what) {
  return failed(ErrorCode::system, fmt::format("cannot {} a Unix socket between the ranks of this "
                                               "node: {}",
                                               what, std::strerror(errno)));
}

// Ranks hand over descriptors only between processes of one user.
bool same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// Whether another connection may still be accepted.
bool concerns_one_visitor(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ECONNABORTED;
}

enum class Polled : uint8_t { ready, late };

Outcome<Polled> poll_for(int fd, short events, Deadline deadline, const Interrupted& interrupted) {
  for (;;) {
    if (interrupted) {
      if (std::optional<Failure> failure = interrupted()) return tl::unexpected(*failure);
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    const auto wait = std::clamp(left, milliseconds{0}, kLookEvery);
    pollfd waiting{fd, events, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(wait.count()));
    if (ready > 0) return Polled::ready;
    if (ready < 0 && errno != EINTR) return socket_failed("wait for");
    if (left <= milliseconds{0}) return Polled::late;
  }
}

// The message from the giver is one byte of payload, which a message with a descriptor must have
// (unix(7)); that from the taker is its index.
union FdControl {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

bool send_fd(int socket, int fd) {
  char byte = 'f';
  iovec payload{&byte, 1};
  FdControl control{};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

// Invalid, with EMFILE in errno: this process cannot open another descriptor.
UniqueFd receive_fd(int socket) {
  char byte = 0;
  iovec payload{&byte, 1};
  FdControl control{};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  errno = 0;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return {};
  if ((message.msg_flags & MSG_CTRUNC) != 0) errno = EMFILE;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return {};
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

tl::unexpected<Failure> did_not_take(const Members& local, const std::vector<bool>& have) {
  std::vector<GlobalRank> missing;
  std::string names;
  for (int rank = 0; rank < local.size(); ++rank) {
    if (have[static_cast<size_t>(rank)]) continue;
    missing.push_back(local[rank].rank);
    names += (names.empty() ? "" : ", ") + describe(local[rank]);
  }
  std::sort(missing.begin(), missing.end());
  return failed(ErrorCode::timeout,
                fmt::format("{} did not arrive in time to share this node's memory; {}", names,
                            look_at(missing.size())),
                std::move(missing));
}

// Waits for a key in short slices, so that it can be interrupted.
Outcome<std::string> wait_for_key(StoreClient& store, const std::string& key,
                                  const SegmentMeeting& meeting) {
  for (;;) {
    if (meeting.interrupted) {
      if (std::optional<Failure> failure = meeting.interrupted()) return tl::unexpected(*failure);
    }
    const auto left = meeting.deadline - steady_clock::now();
    const auto wait = std::clamp<std::chrono::nanoseconds>(left, milliseconds{1}, kLookEvery * 2);
    if (store.wait({key}, wait)) {
      Result<std::string> value = store.get(key);
      if (value) return *value;
      return failed(ErrorCode::rendezvous, value.error().message);
    }
    if (!store.connected()) {
      return failed(ErrorCode::rendezvous,
                    "the connection to the store was lost while the ranks of this node met");
    }
    if (left <= std::chrono::nanoseconds{0}) {
      return failed(ErrorCode::timeout,
                    fmt::format("{} did not arrive in time to share this node's memory; {}",
                                describe(meeting.local[0]), look_at(1)),
                    {meeting.local[0].rank});
    }
  }
}

Outcome<std::shared_ptr<Segment>> give_segment(SegmentMeeting& meeting, const std::string& key) {
  Outcome<std::shared_ptr<Segment>> segment = Segment::create(meeting.shape);
  if (!segment) return segment;
  Outcome<FdGiver> giver = FdGiver::listen();
  if (!giver) return tl::unexpected(std::move(giver.error()));
  const Result<Nothing> told = meeting.store.set(key, giver->name());
  if (!told) return failed(ErrorCode::rendezvous, told.error().message);
  const Outcome<> given =
      giver->give((*segment)->fd(), meeting.local, meeting.deadline, meeting.interrupted);
  if (!given) return tl::unexpected(given.error());
  return segment;
}

}  // namespace

Outcome<FdGiver> FdGiver::listen() {
  Outcome<std::string> name = random_name();
  if (!name) return tl::unexpected(std::move(name.error()));
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return socket_failed("make");
  const AbstractAddress address(*name);
  if (bind(listener.get(), address.get(), address.size) != 0) return socket_failed("bind");
  if (::listen(listener.get(), SOMAXCONN) != 0) return socket_failed("listen on");
  return FdGiver(std::move(listener), std::move(*name));
}

Outcome<> FdGiver::give(int fd, const Members& local, Deadline deadline,
                        const Interrupted& interrupted) {
  std::vector<bool> have(static_cast<size_t>(local.size()), false);
  have[static_cast<size_t>(local.me)] = true;
  while (std::find(have.begin(), have.end(), false) != have.end()) {
    Outcome<Polled> polled = poll_for(listener_.get(), POLLIN, deadline, interrupted);
    if (!polled) return tl::unexpected(std::move(polled.error()));
    if (*polled == Polled::late) return did_not_take(local, have);
    const UniqueFd taker(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (taker.get() < 0 && !concerns_one_visitor(errno)) return socket_failed("accept on");
    if (taker.get() < 0 || !same_user(taker.get())) continue;
    // A taker sends its index at once; an unrelated process of the same user that sends nothing is
    // waited for no longer than this.
    polled = poll_for(taker.get(), POLLIN, std::min(deadline, steady_clock::now() + kStrangerLimit),
                      interrupted);
    if (!polled) return tl::unexpected(std::move(polled.error()));
    int32_t index = -1;
    if (*polled == Polled::late ||
        recv(taker.get(), &index, sizeof index, MSG_DONTWAIT) != sizeof index || index < 0 ||
        index >= local.size() || have[static_cast<size_t>(index)]) {
      continue;
    }
    have[static_cast<size_t>(index)] = send_fd(taker.get(), fd);
  }
  return Done{};
}

Outcome<UniqueFd> take_fd(const std::string& name, const Members& local, int giver,
                          Deadline deadline, const Interrupted& interrupted) {
  if (name.empty() || name.size() > 100) {
    return failed(ErrorCode::rendezvous, fmt::format("{} published no usable name for its socket",
                                                     describe(local[giver])));
  }
  const UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return socket_failed("make");
  const AbstractAddress address(name);
  // The listener's queue is long enough for a node's ranks, so this does not block.
  int connected = -1;
  do {
    connected = connect(connection.get(), address.get(), address.size);
  } while (connected != 0 && errno == EINTR);
  if (connected != 0) {
    return failed(ErrorCode::peer_failed,
                  fmt::format("cannot reach {} on this node to share its memory: {}",
                              describe(local[giver]), std::strerror(errno)),
                  {local[giver].rank});
  }
  if (!same_user(connection.get())) {
    return failed(
        ErrorCode::system,
        fmt::format(
            "{} runs as another user; ranks of one node must run as the same user to share memory",
            describe(local[giver])));
  }
  const auto index = static_cast<int32_t>(local.me);
  if (send(connection.get(), &index, sizeof index, MSG_NOSIGNAL) != sizeof index) {
    return socket_failed("write to");
  }
  Outcome<Polled> polled = poll_for(connection.get(), POLLIN, deadline, interrupted);
  if (!polled) return tl::unexpected(std::move(polled.error()));
  UniqueFd fd;
  if (*polled == Polled::ready) fd = receive_fd(connection.get());
  if (fd.get() < 0) {
    if (*polled == Polled::ready && errno == EMFILE) return socket_failed("take memory from");
    return failed(
        *polled == Polled::late ? ErrorCode::timeout : ErrorCode::peer_failed,
        fmt::format(
            "{} did not hand over this node's shared memory; check whether it is still running",
            describe(local[giver])),
        {local[giver].rank});
  }
  return fd;
}

Outcome<std::shared_ptr<Segment>> meet_in_segment(SegmentMeeting meeting) {
  CHECK(meeting.shape.ranks == meeting.local.size());
  const std::string key = fmt::format("segment/{}", meeting.local[0].rank.value);
  if (meeting.local.me == 0) {
    Outcome<std::shared_ptr<Segment>> segment = give_segment(meeting, key);
    if (segment) (*segment)->close_fd();
    return segment;
  }
  Outcome<std::string> name = wait_for_key(meeting.store, key, meeting);
  if (!name) return tl::unexpected(std::move(name.error()));
  Outcome<UniqueFd> fd = take_fd(*name, meeting.local, 0, meeting.deadline, meeting.interrupted);
  if (!fd) return tl::unexpected(std::move(fd.error()));
  return Segment::open(fd->get(), meeting.shape);
}

}  // namespace muster::worker
