// The watch's sockets: listening at the abstract Unix name and the TCP port of a rank, and dialling
// others there. All are non-blocking and CLOEXEC, and severed in forked children: a copy there
// would hide the death of its owner. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::worker::watch {

// A descriptor and its registration with the fork guard.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
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

Outcome<Socket> listen_unix(const std::string& name);
// Listens at `address`, or at all addresses if the machine does not have it (NAT). Sets `port` to
// the one that was assigned.
Outcome<Socket> listen_tcp(const std::string& address, uint16_t& port);

// A descriptor that becomes readable once the peer process of a Unix connection has ended and its
// parent can reap it. Not open: it has ended already, or the kernel does not say.
Socket watch_process(const Socket& unix_connection);

// nullopt: no connection is pending (`error` is 0), or none can be accepted, for that errno.
std::optional<Socket> accept_unix(const Socket& listener, int& error);  // Of our own user only.
std::optional<Socket> accept_tcp(const Socket& listener, int& error);

struct Dialled {
  Socket socket;  // Not open: `error`.
  int error = 0;  // EINPROGRESS: writable once it is decided; see dial_error().
};
Dialled dial_unix(const std::string& name);
Dialled dial_tcp(const std::string& address, uint16_t port);
// How a dial ended: 0 or an errno.
int dial_error(const Socket& socket);
// Sends of `output` what the kernel takes, and cuts that off. Returns 0 if it was all, or an errno.
int send_some(const Socket& socket, std::string& output);
// Whether this errno of a connection says that no process listens there any more.
bool is_refusal(int error);

}  // namespace muster::worker::watch
