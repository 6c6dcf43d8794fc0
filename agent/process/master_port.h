// A port for workers that make their store themselves (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1). The
// agent binds it and publishes what it got: nothing is probed and then hoped for. The socket stays
// bound but not listening, with SO_REUSEADDR: no other process is given the port by chance, while
// worker 0, whose store also sets SO_REUSEADDR (libuv, asyncio and gRPC do), can bind and listen on
// it (socket(7)). The reservation lasts as long as the object. And: who has a port that was wanted.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/error.h"

namespace muster {

class MasterPort {
 public:
  // Reserves `port`, or a free one for 0, on all addresses of IPv6 and IPv4. Fails when somebody
  // has it, and says who (pid, user, command) as far as /proc lets us see.
  static Result<MasterPort> reserve(int port);

  MasterPort(MasterPort&& other) noexcept;
  MasterPort& operator=(MasterPort&& other) noexcept;
  ~MasterPort();

  int port() const { return port_; }

 private:
  MasterPort(int fd, int lock_fd, int port) : fd_(fd), lock_fd_(lock_fd), port_(port) {}

  int fd_ = -1;
  int lock_fd_ = -1;
  int port_ = 0;
};

// Who listens on a TCP port of this machine: "pid 123 (python3 train.py), user alice", from
// /proc/net/tcp and /proc/PID/fd. Nothing when it cannot be seen.
std::optional<std::string> port_owner(int port);

// `error`, or, if somebody can be seen to listen on the port that it was about, one that says who.
Error name_port_owner(const Error& error, int port);

}  // namespace muster
