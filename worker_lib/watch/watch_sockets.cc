#include "worker_lib/watch/watch_sockets.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/process_end.h"
#include "rendezvous/net/abstract_address.h"
#include "rendezvous/net/interfaces.h"
#include "worker_lib/fork_guard.h"

namespace muster::worker::watch {
namespace {

constexpr int kWatchBacklog = 4096;
constexpr size_t kNameBytes = 16;  // Of a name that nobody must guess.
constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

struct TcpAddress {
  TcpAddress(const IpAddress& ip, uint16_t port) : size(SocketAddress{ip, port}.to_sockaddr(raw)) {}
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&raw); }

  sockaddr_storage raw{};
  socklen_t size;
};

// A silent peer is noticed after 5 s + 3 x 2 s: if the launcher's agents watch the nodes, their
// lease has expired before that.
void set_tcp_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 11'000);
}

Socket accept_any(const Socket& listener, int& error) {
  for (;;) {
    const int fd = ::accept4(listener.fd(), nullptr, nullptr, kFlags);
    error = fd >= 0 || errno == EAGAIN ? 0 : errno;
    if (fd >= 0 || error == 0) return Socket(fd);
    // accept(2): errors of a connection that is gone already.
    if (error != EINTR && error != ECONNABORTED && error != EPROTO) return Socket();
  }
}

int connect_error(const Socket& socket, const sockaddr* address, socklen_t size) {
  int result;
  do {
    result = ::connect(socket.fd(), address, size);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

tl::unexpected<Failure> watch_system_failure(std::string_view what) {
  return failed(ErrorCode::system,
                fmt::format("cannot {} to watch the other ranks: {}", what, std::strerror(errno)));
}

Socket::Socket(int fd) : fd_(fd) {
  if (fd_ >= 0) sever_in_forked_child(fd_);
}

Socket::~Socket() {
  if (fd_ < 0) return;
  forget_severed(fd_);
  ::close(fd_);
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

Outcome<Socket> listen_unix(const std::string& name) {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | kFlags, 0));
  if (!socket.is_open()) return watch_system_failure("make a Unix socket");
  const AbstractAddress address(name);
  if (::bind(socket.fd(), address.get(), address.size) != 0 ||
      ::listen(socket.fd(), kWatchBacklog) != 0)
    return watch_system_failure("listen at an abstract Unix name");
  return socket;
}

Outcome<Socket> listen_tcp(const std::string& address, uint16_t& port) {
  const std::optional<IpAddress> ip = IpAddress::parse(address);
  if (!ip)
    return failed(
        ErrorCode::system,
        fmt::format("cannot listen at {} to watch the other ranks: not an IP address", address));
  Socket socket(::socket(ip->is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | kFlags, 0));
  if (!socket.is_open()) return watch_system_failure("make a TCP socket");
  TcpAddress wanted(*ip, 0);
  int bound = ::bind(socket.fd(), wanted.get(), wanted.size);
  if (bound != 0 && errno == EADDRNOTAVAIL) {
    wanted = TcpAddress(ip->is_v6() ? IpAddress::any_v6() : IpAddress::any_v4(), 0);
    bound = ::bind(socket.fd(), wanted.get(), wanted.size);
  }
  if (bound != 0 || ::listen(socket.fd(), kWatchBacklog) != 0)
    return watch_system_failure("listen at " + address);
  port = local_address_of(socket.fd()).port;
  CHECK(port != 0);
  return socket;
}

Socket watch_process(const Socket& unix_connection) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(unix_connection.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return Socket();
  // A process of another PID namespace has PID 0.
  if (who.pid <= 0 || who.pid == ::getpid()) return Socket();
  return Socket(open_process_end(who.pid).release());
}

std::optional<Socket> accept_unix(const Socket& listener, int& error) {
  for (;;) {
    Socket socket = accept_any(listener, error);
    if (!socket.is_open()) return std::nullopt;
    ucred who{};
    socklen_t size = sizeof who;
    const bool known = ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
    if (known && who.uid == ::geteuid()) return socket;
  }
}

std::optional<Socket> accept_tcp(const Socket& listener, int& error) {
  Socket socket = accept_any(listener, error);
  if (!socket.is_open()) return std::nullopt;
  set_tcp_options(socket.fd());
  return socket;
}

Dialled dial_unix(const std::string& name) {
  Dialled made{Socket(::socket(AF_UNIX, SOCK_STREAM | kFlags, 0)), 0};
  if (!made.socket.is_open()) return {Socket(), errno};
  const AbstractAddress address(name);
  made.error = connect_error(made.socket, address.get(), address.size);
  return made;
}

Dialled dial_tcp(const std::string& address, uint16_t port) {
  const std::optional<IpAddress> ip = IpAddress::parse(address);
  if (!ip) return {Socket(), EINVAL};
  Dialled made{Socket(::socket(ip->is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | kFlags, 0)), 0};
  if (!made.socket.is_open()) return {Socket(), errno};
  set_tcp_options(made.socket.fd());
  const TcpAddress target(*ip, port);
  made.error = connect_error(made.socket, target.get(), target.size);
  return made;
}

int send_some(const Socket& socket, std::string& output) {
  while (!output.empty()) {
    const ssize_t sent = ::send(socket.fd(), output.data(), output.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno;
    output.erase(0, static_cast<size_t>(sent));
  }
  return 0;
}

bool is_refusal(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
}

int dial_error(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

}  // namespace muster::worker::watch
