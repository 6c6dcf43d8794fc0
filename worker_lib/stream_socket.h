// Stream sockets between ranks: TCP to other nodes, abstract Unix sockets within one (half the cost
// of loopback TCP for large messages). All non-blocking and CLOEXEC. Plain functions; any thread.
#pragma once

#include <span>
#include <string>

#include <sys/socket.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listening_socket.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using Socket = UniqueFd;

struct Dialled {
  Socket socket;  // Not open: see `error`.
  int error = 0;  // EINPROGRESS: the socket becomes writable when the dial ends; see dial_error().
};
Dialled dial(const SocketAddress& address);
Dialled dial_local(const std::string& abstract_name, int type = SOCK_STREAM);
// Returns how a dial ended: 0 or an errno.
int dial_error(int fd);
// True if this errno of a connection means that no process listens there any more.
bool is_refusal(int error);

// Returns a socket that is not open, with errno set, if the name is taken or the kernel refuses.
Socket listen_local(const std::string& abstract_name, int type = SOCK_STREAM);
// Listens on a free port of `ip`, or of all addresses if the machine does not have it (NAT).
tl::expected<ListeningSocket, ListenError> listen_near(const IpAddress& ip);
// Returns no open socket if no connection is pending (`error` 0) or accept4() failed (its errno).
Socket accept_next(int listener, int& error);

// As send(2) without SIGPIPE and as recv(2), with a descriptor along (unix(7)). `fd`: -1: none is
// sent; replaced by one that came. If one was lost because this process has no room for it, errno
// is EMFILE although bytes came.
ssize_t send_with_fd(int socket, std::span<const char> bytes, int fd);
ssize_t receive_with_fd(int socket, std::span<char> into, UniqueFd& fd);

// Sends small messages without delay.
void set_no_delay(int fd);

// Keeps the data in flight within the cache on a connection within one machine (recognised by the
// round-trip time of its handshake): the kernel's automatic growth of buffers, made for long
// distances, puts megabytes in flight: 16 MiB took 1.6 times as long. REQUIRES: connected.
void fit_buffers(int fd);

// True if the other end of a Unix socket runs as this user; always true for TCP.
bool is_own_user(int fd);

// Returns "could not <what>: ...", code system.
tl::unexpected<Failure> socket_failure(const std::string& what, int error);

}  // namespace muster::worker
