// Resolves names to addresses without blocking the loop. getaddrinfo(3) cannot be interrupted and
// may hang for half a minute, so each look-up runs in a detached thread, at most kLookupsMax per
// process. When the deadline passes or the Resolver is destroyed, the thread goes on with its own
// copy of the query and its answer is discarded. Numeric addresses need no thread. Muster does no
// reverse look-ups.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/net_error.h"

namespace muster {

inline constexpr int kLookupsMax = 16;

// A blocking look-up, callable from any thread; tests inject names that hang.
using LookUp = std::function<NetResult<std::vector<IpAddress>>(const std::string& host)>;
NetResult<std::vector<IpAddress>> look_up_by_getaddrinfo(const std::string& host);

// Parses "10.0.0.1", "[fd00::1]", "fe80::1%eth0"; nullopt for names. Never blocks.
std::optional<IpAddress> numeric_address(const std::string& host);

class Resolver {
 public:
  using Callback = std::function<void(NetResult<std::vector<SocketAddress>>)>;

  explicit Resolver(boost::asio::io_context& io, LookUp look_up = look_up_by_getaddrinfo);
  Resolver(Resolver&&) = delete;
  ~Resolver();  // pending callbacks are never called

  // Calls back once, from the loop, never from inside this call, with at least one address in the
  // resolver's order, or with name_unknown or resolver. Look-ups may overlap.
  void resolve(const std::string& host, uint16_t port, Deadline deadline, Callback callback);

 private:
  struct Pending;
  void start_thread(const std::shared_ptr<Pending>& pending);

  boost::asio::io_context& io_;
  LookUp look_up_;
  std::vector<std::shared_ptr<Pending>> pending_;
};

}  // namespace muster
