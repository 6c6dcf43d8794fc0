#include "worker_lib/watch/watch_sockets.h"

#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/process_end.h"
#include "rendezvous/net/connect.h"

namespace muster::worker::watch {
namespace {

constexpr size_t kNameBytes = 16;  // Length of a name that must not be guessed.
// Time until a silent peer is noticed; longer than the lease of the launcher's agents.
constexpr Duration kSilence = std::chrono::seconds(11);

}  // namespace

tl::unexpected<Failure> watch_system_failure(std::string_view what) {
  return failed(ErrorCode::system,
                fmt::format("cannot {} to watch the other ranks: {}", what, std::strerror(errno)));
}

GuardedFd::GuardedFd(UniqueFd fd) : fd_(std::move(fd)) {
  sever_in_forked_child(fd_.get());
}

std::string link_purpose(const WatchKeys& keys, const Members& world, int from, int to, bool asks,
                         uint16_t port) {
  return fmt::format("watch {} of {} ranks: {} {} {} at {} {}", to_hex(keys.id), world.size(), from,
                     asks ? "asks" : "joins", to, port == 0 ? "" : world[to].address, port);
}

std::string unix_name(const WatchKeys& keys, int rank) {
  const Mac mac = mac_of(keys.secret, {"muster watch name 1", keys.id, std::to_string(rank)});
  return "muster-watch-" + to_hex(raw_bytes(mac).substr(0, kNameBytes));
}

Outcome<GuardedFd> listen_unix(const std::string& name) {
  GuardedFd socket(listen_local(name));
  if (!socket.is_open()) return watch_system_failure("listen at an abstract Unix name");
  return socket;
}

Outcome<GuardedFd> listen_tcp(const std::string& address, uint16_t& port) {
  const std::optional<IpAddress> ip = IpAddress::parse(address);
  auto listening = ip ? listen_near(*ip) : tl::unexpected(ListenError{0, {}, "not an IP address"});
  if (!listening)
    return failed(ErrorCode::system, fmt::format("cannot listen at {} to watch the other ranks: {}",
                                                 address, listening.error().message));
  port = listening->address.port;
  CHECK(port != 0);
  return GuardedFd(std::move(listening->fd));
}

int peer_of(const GuardedFd& unix_connection) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(unix_connection.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return 0;
  return who.pid == ::getpid() ? 0 : who.pid;
}

GuardedFd watch_process(const GuardedFd& unix_connection, int& pid) {
  pid = peer_of(unix_connection);
  return pid > 0 ? GuardedFd(open_process_end(pid)) : GuardedFd();
}

Dialled dial_rank(const WatchKeys& keys, const Members& world, int rank, uint16_t port) {
  if (world[rank].node == world.self().node) return dial_local(unix_name(keys, rank));
  const std::optional<IpAddress> ip = IpAddress::parse(world[rank].address);
  if (!ip) return {{}, EINVAL};
  Dialled made = dial({*ip, port});
  if (made.socket) set_watch_options(made.socket.get());
  return made;
}

void set_watch_options(int fd) {
  set_connection_options(fd, kSilence);
}

int send_some(const GuardedFd& socket, std::string& output, int& lent) {
  while (!output.empty()) {
    const ssize_t sent = send_with_fd(socket.fd(), output, lent);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && lent >= 0 && errno != EAGAIN) {
      lent = -1;  // Perhaps it is refused (ETOOMANYREFS, ENOMEM), and the message is not.
      continue;
    }
    if (sent < 0) return errno;
    lent = -1;
    output.erase(0, static_cast<size_t>(sent));
  }
  return 0;
}

}  // namespace muster::worker::watch
