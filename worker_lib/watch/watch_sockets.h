// The watch's descriptors: the sockets that listen at a rank's abstract Unix name and TCP port, and
// connections to others' (stream_socket.h). All are severed in forked children: a copy there would
// hide the death of its owner. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "worker_lib/failure.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/members.h"
#include "worker_lib/stream_socket.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::worker::watch {

// A descriptor registered with the fork guard.
class GuardedFd {
 public:
  GuardedFd() = default;
  explicit GuardedFd(UniqueFd fd);
  GuardedFd(GuardedFd&& other) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~GuardedFd() { forget_severed(fd_.get()); }

  int fd() const { return fd_.get(); }
  bool is_open() const { return bool(fd_); }

 private:
  UniqueFd fd_;
};

// Keys that the ranks of a job share.
struct WatchKeys {
  std::string secret;  // The job's; never sent.
  std::string id;      // This watch's: random bytes, not secret.
};

// Returns LinkTerms::purpose for a connection that `from` dials to `to`, to link or to ask. `port`:
// the one dialled on another node, against relayed proofs; 0 within a node.
std::string link_purpose(const WatchKeys& keys, const Members& world, int from, int to, bool asks,
                         uint16_t port);

// Returns "cannot make an epoll set to watch the other ranks: ...", with errno's text.
tl::unexpected<Failure> watch_system_failure(std::string_view what);

// Returns the name at which rank `rank` listens, within its network namespace. All users can read a
// machine's names, but cannot derive another rank's name from them.
std::string unix_name(const WatchKeys& keys, int rank);

Outcome<GuardedFd> listen_unix(const std::string& name);
// Listens near `address` (listen_near()). Sets `port` to the one that was assigned.
Outcome<GuardedFd> listen_tcp(const std::string& address, uint16_t& port);
// Dials a rank, at `port` if it is on another node.
Dialled dial_rank(const WatchKeys& keys, const Members& world, int rank, uint16_t port);
// Sets the options of connections between nodes.
void set_watch_options(int fd);

// Returns the pid of the other process of a Unix connection; 0: of another PID namespace, or ours.
int peer_of(const GuardedFd& unix_connection);

// Returns a descriptor that becomes readable once the peer process of a Unix connection has ended
// and its parent can reap it, and sets `pid`. Not open: it has ended already, or is unknown.
GuardedFd watch_process(const GuardedFd& unix_connection, int& pid);

// Sends what the kernel takes of `output`, and removes it. Returns 0 if all was sent, or an errno.
// `lent`: a descriptor to be sent along on a Unix connection, unless the kernel refuses that; then
// set to -1. -1: none.
int send_some(const GuardedFd& socket, std::string& output, int& lent);

}  // namespace muster::worker::watch
