// Stream sockets between ranks: TCP to other nodes, abstract Unix sockets within one (half the cost
// of loopback TCP for large messages). All are non-blocking and CLOEXEC. Plain functions; any
// thread.
#pragma once

#include <string>

#include <sys/socket.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listening_socket.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using Socket = UniqueFd;

struct Dialled {
  Socket socket;  // Not open: `error`.
  int error = 0;  // EINPROGRESS: the socket becomes writable once it is decided; see dial_error().
};
Dialled dial(const SocketAddress& address);
Dialled dial_local(const std::string& abstract_name, int type = SOCK_STREAM);
// How a dial ended: 0 or an errno.
int dial_error(int fd);
// Whether this errno of a connection says that no process listens there any more.
bool is_refusal(int error);

// Not open, and errno says why, if the name is taken or the kernel refuses.
Socket listen_local(const std::string& abstract_name, int type = SOCK_STREAM);
// At a free port of `ip`, or of all addresses if the machine does not have it (NAT).
tl::expected<ListeningSocket, ListenError> listen_near(const IpAddress& ip);
// Not open: no connection is pending (`error` is 0), or none can be accepted, for that errno.
Socket accept_next(int listener, int& error);

// Sends small messages without delay.
void set_no_delay(int fd);

// Keeps data in flight small enough for the cache on a connection within one machine (by the
// round-trip time of its handshake). The kernel's automatic growth of buffers, which long distances
// need, puts megabytes in flight there: 16 MiB between two processes took 1.6 times as long.
// REQUIRES: connected.
void fit_buffers(int fd);

// Whether the other end of a Unix socket runs as this user; true for TCP.
bool is_own_user(int fd);

// "could not <what>: ...", of code system.
tl::unexpected<Failure> socket_failure(const std::string& what, int error);

}  // namespace muster::worker
