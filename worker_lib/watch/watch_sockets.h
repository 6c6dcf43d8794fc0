// The watch's descriptors: the sockets that listen at the abstract Unix name and the TCP port of a
// rank, and those to others there (stream_socket.h). All are severed in forked children: a copy
// there would hide the death of its owner. Plain functions; any thread.
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

// A descriptor and its registration with the fork guard.
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

// What the ranks of a job have in common.
struct WatchKeys {
  std::string secret;  // The job's; never sent.
  std::string id;      // Of this watch: random bytes, no secret.
};

// For the proofs on a connection that `from` dials to `to`, to link itself or to ask. `port`: where
// it is dialled on another node, so that nobody can relay it from elsewhere; 0 within a node.
std::string link_purpose(const WatchKeys& keys, const Members& world, int from, int to, bool asks,
                         uint16_t port);

// "cannot make an epoll set to watch the other ranks: ...", for this errno.
tl::unexpected<Failure> watch_system_failure(std::string_view what);

// The name that rank `rank` listens at, for processes of its network namespace. All users can read
// the names of a machine, but not tell from them the name of another rank.
std::string unix_name(const WatchKeys& keys, int rank);

Outcome<GuardedFd> listen_unix(const std::string& name);
// Listens near `address` (listen_near()). Sets `port` to the one that was assigned.
Outcome<GuardedFd> listen_tcp(const std::string& address, uint16_t& port);
// Dials a rank: at `port`, if it is on another node.
Dialled dial_rank(const WatchKeys& keys, const Members& world, int rank, uint16_t port);
// For the connections of other nodes.
void set_watch_options(int fd);

// A descriptor that becomes readable once the peer process of a Unix connection has ended and its
// parent can reap it. Not open: it has ended already, or the kernel does not say.
GuardedFd watch_process(const GuardedFd& unix_connection);

// Sends of `output` what the kernel takes, and cuts that off. Returns 0 if it was all, or an errno.
int send_some(const GuardedFd& socket, std::string& output);

}  // namespace muster::worker::watch
