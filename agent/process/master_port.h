// A port for workers that create the store themselves (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1). The
// agent binds the port and publishes its number, so it cannot be lost between probing and use. The
// socket stays bound but not listening, with SO_REUSEADDR: the kernel gives the port to no other
// process by chance, while worker 0, whose store also sets SO_REUSEADDR (libuv, asyncio and gRPC
// do), can bind and listen on it (socket(7)). The reservation lasts as long as the object. Also
// finds a port's owner.
#pragma once

#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

class MasterPort {
 public:
  // Reserves a free port on all IPv6 and IPv4 addresses.
  static Result<MasterPort> reserve();

  int port() const { return port_; }

 private:
  MasterPort(UniqueFd fd, int port) : fd_(std::move(fd)), port_(port) {}

  UniqueFd fd_;
  int port_;
};

// Returns `error`, or, if /proc shows which process uses `port` on this machine, an error that
// names it (pid, command, user).
Error name_port_owner(const Error& error, int port);

}  // namespace muster
