#include "worker_lib/backends/cpu/tcp_socket.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/event_fd.h"
#include "rendezvous/net/abstract_address.h"

namespace muster::worker {
namespace {

tl::unexpected<Failure> socket_failure(const char* what, int error) {
  const bool refused = error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH;
  return failed(refused ? ErrorCode::peer_failed : ErrorCode::system,
                fmt::format("{}: {}", what, std::strerror(error)));
}

Outcome<Socket> connect_to(int family, const sockaddr* raw, socklen_t length) {
  Socket made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return socket_failure("could not make a socket", errno);
  if (family != AF_UNIX) set_no_delay(made.get());
  if (connect(made.get(), raw, length) == 0 || errno == EINPROGRESS) return made;
  return socket_failure("could not connect", errno);
}

}  // namespace

Outcome<WakeEvent> WakeEvent::make() {
  WakeEvent event;
  event.socket_ = Socket(open_event_fd().release());
  if (!event.socket_) return socket_failure("could not make an eventfd", errno);
  return event;
}

void WakeEvent::wake() const {
  raise_event(fd());
}

void WakeEvent::drain() const {
  drain_event(fd());
}

Outcome<Socket> begin_connect(const SocketAddress& address) {
  sockaddr_storage raw{};
  const socklen_t length = address.to_sockaddr(raw);
  return connect_to(raw.ss_family, reinterpret_cast<const sockaddr*>(&raw), length);
}

Outcome<Socket> begin_connect_local(const std::string& abstract_name) {
  const AbstractAddress address(abstract_name);
  return connect_to(AF_UNIX, address.get(), address.size);
}

Outcome<Socket> listen_local(const std::string& abstract_name) {
  const AbstractAddress address(abstract_name);
  Socket made(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) return socket_failure("could not make a Unix socket", errno);
  if (bind(made.get(), address.get(), address.size) != 0 || listen(made.get(), 1 << 16) != 0)
    return socket_failure("could not listen on an abstract Unix socket", errno);
  return made;
}

void set_no_delay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // Fails on Unix sockets: fine.
}

void fit_buffers(int fd) {
  constexpr uint32_t kNearUs = 40;
  // The default of net.core.wmem_max, which caps this option; the kernel doubles it.
  constexpr int kNearBytes = 212992;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;  // A Unix socket.
  if (length >= offsetof(tcp_info, tcpi_rcv_rtt) && info.tcpi_rtt <= kNearUs)
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kNearBytes, sizeof kNearBytes);
}

bool is_own_user(int fd) {
  ucred other{};
  socklen_t length = sizeof other;
  int family = 0;
  socklen_t family_length = sizeof family;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &family_length) != 0) return false;
  if (family != AF_UNIX) return true;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) return false;
  return other.uid == geteuid() || other.uid == 0;
}

}  // namespace muster::worker
