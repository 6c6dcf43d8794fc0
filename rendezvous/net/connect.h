// Connects to a host name and port over TCP by happy eyeballs (RFC 8305): both families alternate,
// each attempt starts 250 ms after the previous one or as soon as that fails, and the first
// connection wins. If all fail, one error lists each address with its reason. A family that does
// not work goes unreported if the other one does.
//
//   auto connecting = connect_any(io, "node1", 29500, deadline, {},
//                                 [](NetResult<TcpSocket> got) {...});
//
// The returned handle owns the operation: destroying it cancels it without a callback.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/resolve.h"

namespace muster {

using TcpSocket = boost::asio::ip::tcp::socket;

struct ConnectOptions {
  Duration attempt_delay = std::chrono::milliseconds(250);
  // Time until a connection to a dead peer fails, idle (keepalive) or with unacknowledged data
  // (TCP_USER_TIMEOUT). Zero: the kernel's defaults, which take hours.
  Duration dead_peer_after{};
  LookUp look_up = look_up_by_getaddrinfo;
};

using Connecting = std::shared_ptr<void>;
using ConnectCallback = std::function<void(NetResult<TcpSocket>)>;

// Calls back once, from the loop, never from inside this call. Sets TCP_NODELAY.
[[nodiscard]] Connecting connect_any(boost::asio::io_context& io, const std::string& host,
                                     uint16_t port, Deadline deadline, ConnectOptions options,
                                     ConnectCallback callback);

// The same for resolved addresses; `name` is for messages.
[[nodiscard]] Connecting connect_any(boost::asio::io_context& io, const std::string& name,
                                     const std::vector<SocketAddress>& addresses, Deadline deadline,
                                     ConnectOptions options, ConnectCallback callback);

// The same, blocking, for clients without a loop. The caller owns the returned descriptor, which
// has O_NONBLOCK and CLOEXEC set. Never throws for lack of descriptors.
NetResult<int> connect_blocking(const std::string& host, uint16_t port, Deadline deadline,
                                ConnectOptions options = {});

// Sets TCP_NODELAY, and ConnectOptions::dead_peer_after unless zero; also for accepted sockets.
void set_connection_options(int fd, Duration dead_peer_after);

}  // namespace muster
