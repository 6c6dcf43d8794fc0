#include "agent/process/master_port.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "rendezvous/net/address.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/port_holder.h"

namespace muster {
namespace {

UniqueFd bound_socket(const IpAddress& any) {
  sockaddr_storage raw{};
  const socklen_t length = SocketAddress{any, 0}.to_sockaddr(raw);
  UniqueFd fd(socket(raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int one = 1;
  const int zero = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (any.is_v6()) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&raw), length) != 0) fd.reset();
  return fd;
}

}  // namespace

Result<MasterPort> MasterPort::reserve() {
  UniqueFd fd = bound_socket(IpAddress::any_v6());  // IPv4 as well.
  if (!fd) fd = bound_socket(IpAddress::any_v4());  // The kernel has no IPv6.
  if (!fd) {
    return fail(
        ExitCode::environment,
        fmt::format("cannot bind a port for the workers' MASTER_PORT: {}", std::strerror(errno)));
  }
  const int port = local_address_of(fd.get()).port;
  return MasterPort(std::move(fd), port);
}

Error name_port_owner(const Error& error, int port) {
  if (port <= 0 || error.code != ExitCode::environment) return error;
  if (std::optional<std::string> held = connection_at(port))
    return {ExitCode::environment, *std::move(held)};
  const std::optional<std::string> owner = listener_at(port);
  if (!owner) return error;
  return {ExitCode::environment,
          fmt::format("port {} is in use by {}: stop that process, choose another port "
                      "(--master-port, --rdzv-endpoint; one node alone may leave the flag out)",
                      port, *owner)};
}

}  // namespace muster
