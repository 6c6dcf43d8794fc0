// The address at which the workers of an attempt meet. The agent binds the port itself and
// publishes what it got: nothing is probed and then hoped for. Until the agent serves a store
// there, the socket stays bound but not listening, with SO_REUSEADDR: no other process is given the
// port by chance, while worker 0, whose store also sets SO_REUSEADDR (libuv, asyncio and gRPC do),
// can bind and listen on it (socket(7)). The reservation lasts as long as the object.
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

// The name that torchrun would publish for a machine without a rendezvous, Python's getfqdn(): from
// the host name to its address and back, the first name with a dot, else the canonical one; here by
// /etc/hosts alone, and only where the address is one of ours. Otherwise 127.0.0.1. No DNS: reverse
// look-ups stall a start for seconds and name addresses that nobody listens on.
std::string local_master_addr();

// The pure half of the above: the name for `hostname` in the text of a hosts file, and its address.
struct HostsEntry {
  std::string address;
  std::string name;
  friend bool operator==(const HostsEntry&, const HostsEntry&) = default;
};
std::optional<HostsEntry> find_in_hosts(std::string_view hosts_text, std::string_view hostname);

}  // namespace muster
