// A port for workers that create the store themselves (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1). The
// agent binds the port and publishes its number: it cannot be lost between probing and use. The
// socket stays bound but not listening, with SO_REUSEADDR: no other process is given the port by
// chance, while worker 0, whose store also sets SO_REUSEADDR (libuv, asyncio and gRPC do), can bind
// and listen on it (socket(7)). The reservation lasts as long as the object. Also finds a port's
// owner.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/error.h"

namespace muster {

class MasterPort {
 public:
  // Reserves `port`, or a free one for 0, on all IPv6 and IPv4 addresses. If the port is taken, the
  // error names the process (pid, user, command) as far as /proc shows it.
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

// The process that listens on a TCP port of this machine: "pid 123 (python3 train.py), user alice",
// from /proc/net/tcp and /proc/PID/fd. nullopt if it cannot be seen.
std::optional<std::string> port_owner(int port);

// `error`, or one that names the process that listens on `port`, if that can be seen.
Error name_port_owner(const Error& error, int port);

}  // namespace muster
