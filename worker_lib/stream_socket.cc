#include "worker_lib/stream_socket.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include "rendezvous/net/abstract_address.h"

namespace muster::worker {
namespace {

constexpr int kQuiet = SOCK_NONBLOCK | SOCK_CLOEXEC;
// The kernel caps it at net.core.somaxconn.
constexpr int kBacklog = 1 << 16;

Dialled dial_at(Socket socket, const sockaddr* address, socklen_t size) {
  if (!socket) return {{}, errno};
  int result = -1;
  do {
    result = connect(socket.get(), address, size);
  } while (result != 0 && errno == EINTR);
  return {std::move(socket), result == 0 ? 0 : errno};
}

}  // namespace

Dialled dial(const SocketAddress& address) {
  sockaddr_storage raw{};
  const socklen_t size = address.to_sockaddr(raw);
  Socket made(socket(raw.ss_family, SOCK_STREAM | kQuiet, 0));
  if (made) set_no_delay(made.get());
  return dial_at(std::move(made), reinterpret_cast<const sockaddr*>(&raw), size);
}

Dialled dial_local(const std::string& abstract_name, int type) {
  const AbstractAddress address(abstract_name);
  return dial_at(Socket(socket(AF_UNIX, type | kQuiet, 0)), address.get(), address.size);
}

int dial_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

bool is_refusal(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
}

Socket listen_local(const std::string& abstract_name, int type) {
  const AbstractAddress address(abstract_name);
  Socket made(socket(AF_UNIX, type | kQuiet, 0));
  if (made && bind(made.get(), address.get(), address.size) == 0 &&
      listen(made.get(), kBacklog) == 0)
    return made;
  const int error = errno;
  made.reset();
  errno = error;
  return made;
}

tl::expected<ListeningSocket, ListenError> listen_near(const IpAddress& ip) {
  auto listening = listen_on({{ip, 0}});
  if (!listening)
    listening = listen_on({{ip.is_v6() ? IpAddress::any_v6() : IpAddress::any_v4(), 0}});
  return std::move(listening).map([](auto sockets) { return std::move(sockets.front()); });
}

Socket accept_next(int listener, int& error) {
  for (;;) {
    Socket accepted(accept4(listener, nullptr, nullptr, kQuiet));
    error = accepted || errno == EAGAIN ? 0 : errno;
    if (accepted || error == 0 || !concerns_one_connection(error)) return accepted;
  }
}

namespace {

struct MessageWithFd {
  explicit MessageWithFd(std::span<char> bytes) : payload{bytes.data(), bytes.size()} {
    head.msg_iov = &payload;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = sizeof control;
  }
  iovec payload;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] =
      {};  // More do not fit: the kernel closes them.
  msghdr head{};
};

}  // namespace

ssize_t send_with_fd(int socket, std::span<const char> bytes, int fd) {
  MessageWithFd message({const_cast<char*>(bytes.data()), bytes.size()});
  cmsghdr* const header = CMSG_FIRSTHDR(&message.head);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (fd < 0) message.head.msg_controllen = 0;
  return ::sendmsg(socket, &message.head, MSG_NOSIGNAL);
}

ssize_t receive_with_fd(int socket, std::span<char> into, UniqueFd& fd) {
  MessageWithFd message(into);
  const ssize_t received = ::recvmsg(socket, &message.head, MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  if ((message.head.msg_flags & MSG_CTRUNC) != 0) errno = EMFILE;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message.head);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int)))
    return received;
  int came = -1;
  std::memcpy(&came, CMSG_DATA(header), sizeof came);
  fd.reset(came);
  return received;
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
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

tl::unexpected<Failure> socket_failure(const std::string& what, int error) {
  return failed(ErrorCode::system, fmt::format("could not {}: {}", what, std::strerror(error)));
}

}  // namespace muster::worker
