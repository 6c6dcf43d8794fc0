// A stream socket that closes itself, and the two ways to start a connection: TCP to another node,
// an abstract Unix socket within one (half the cost of loopback TCP for large messages). All are
// non-blocking and CLOEXEC.
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

// Starts connecting; the result is known when the socket becomes writable. Fails with the kernel's
// reason: peer_failed if the peer refuses or is unreachable, else system.
Outcome<Socket> begin_connect(const SocketAddress& address);
Outcome<Socket> begin_connect_local(const std::string& abstract_name);

// A listening abstract Unix socket of that name.
Outcome<Socket> listen_local(const std::string& abstract_name);

// Sends small messages without delay.
void set_no_delay(int fd);

// Keeps data in flight small enough for the cache on a connection within one machine (by the
// round-trip time of its handshake). The kernel's automatic growth of buffers, which long distances
// need, puts megabytes in flight there: 16 MiB between two processes took 1.6 times as long.
// REQUIRES: connected.
void fit_buffers(int fd);

// Whether the other end of a Unix socket runs as this user or as root; true for TCP.
bool is_own_user(int fd);

}  // namespace muster::worker
