// A stream socket as a value that closes itself, and the two ways to begin a connection: TCP to
// another node, an abstract Unix socket within one (half the cost of loopback TCP for large
// messages). All are non-blocking and CLOEXEC.
#pragma once

#include <string>
#include <utility>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using Socket = UniqueFd;

// An eventfd: written by wake(), readable until drain().
class WakeEvent {
 public:
  static Outcome<WakeEvent> make();
  int fd() const { return socket_.get(); }
  void wake() const;
  void drain() const;

 private:
  Socket socket_;
};

// Begins; whether it worked shows when the socket is writable. A failure carries the kernel's
// reason: of code peer_failed where nobody listens, of `system` else.
Outcome<Socket> begin_connect(const SocketAddress& address);
Outcome<Socket> begin_connect_local(const std::string& abstract_name);

// A listening abstract Unix socket of that name.
Outcome<Socket> listen_local(const std::string& abstract_name);

// Sends small messages at once.
void set_no_delay(int fd);

// Keeps what is under way small enough for the cache on a connection within one machine (that of
// its handshake shows in its round-trip time). The kernel's own growth of buffers, which long
// distances need, puts megabytes under way there: 16 MiB between two processes took 1.6 times as
// long. REQUIRES: connected.
void fit_buffers(int fd);

// Whether the other end of a Unix socket runs as this user or as root; true for TCP.
bool is_own_user(int fd);

// `count` bytes from the kernel's generator.
std::string random_bytes(size_t count);

}  // namespace muster::worker
