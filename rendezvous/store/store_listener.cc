#include "rendezvous/store/store_listener.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/store_sockets.h"

namespace muster {

namespace {

// Accepts per batch; between two batches the loop runs its other work.
constexpr int kStoreAccepts = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds{100};

tl::unexpected<Error> store_listen_failure(int fd, const SocketAddress& address) {
  const int error = errno;
  if (fd >= 0) ::close(fd);
  const char* hint = error == EADDRINUSE      ? "; choose another port"
                     : error == EADDRNOTAVAIL ? "; choose an address of this machine"
                     : error == EACCES        ? "; choose a port above 1023"
                     : error == EMFILE        ? "; raise the limit of descriptors (ulimit -n)"
                                              : "";
  return fail(ExitCode::environment, fmt::format("cannot listen on {} for the store: {}{}",
                                                 address.to_string(), std::strerror(error), hint));
}

uint16_t store_listener_port(int fd) {
  sockaddr_storage raw{};
  socklen_t length = sizeof raw;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &length);
  const std::optional<SocketAddress> address = SocketAddress::from_sockaddr(raw);
  return address ? address->port : uint16_t{0};
}

}  // namespace

Result<std::unique_ptr<StoreListener>> StoreListener::open(boost::asio::io_context& io,
                                                           StoreServer& server,
                                                           const SocketAddress& address) {
  sockaddr_storage raw{};
  const socklen_t length = address.to_sockaddr(raw);
  const int fd = ::socket(raw.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return store_listen_failure(fd, address);
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ip.is_v6()) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&raw), length) != 0 ||
      ::listen(fd, SOMAXCONN) != 0) {
    return store_listen_failure(fd, address);
  }
  return std::unique_ptr<StoreListener>(new StoreListener(io, server, fd, store_listener_port(fd)));
}

StoreListener::StoreListener(boost::asio::io_context& io, StoreServer& server, int fd,
                             uint16_t port)
    : server_(server),
      socket_(io, fd),
      pause_timer_(io),
      port_(port),
      alive_(std::make_shared<bool>(true)) {
  store_socket_opened(fd);
  arm();
}

StoreListener::~StoreListener() {
  store_socket_closing(socket_.native_handle());
  *alive_ = false;
}

void StoreListener::arm() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = alive_](boost::system::error_code error) {
                       if (!error && *alive) accept_batch();
                     });
}

void StoreListener::accept_batch() {
  for (int i = 0; i < kStoreAccepts; i++) {
    const int fd =
        ::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      server_.adopt(fd);
      continue;
    }
    if (is_out_of_descriptors(errno) || errno == ENOBUFS || errno == ENOMEM) return pause();
    // Any error other than EAGAIN concerns a single connection that is already gone.
    if (errno == EAGAIN) break;
  }
  arm();
}

void StoreListener::pause() {
  pauses_++;
  pause_timer_.expires_after(kAcceptPause);
  pause_timer_.async_wait([this, alive = alive_](boost::system::error_code error) {
    if (!error && *alive) accept_batch();
  });
}

}  // namespace muster
