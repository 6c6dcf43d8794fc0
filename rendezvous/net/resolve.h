// Resolves names to addresses without ever blocking the loop. getaddrinfo(3) cannot be interrupted
// and may hang for half a minute, so each look-up runs in a detached helper thread. When the
// deadline passes or the Resolver is destroyed, the thread goes on with its own copy of the query
// and its answer is discarded. A process never has more than kLookupsMax such threads. Numeric
// addresses need no thread. Neither this file nor any other does reverse look-ups.
#pragma once

#include <chrono>
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

// A look-up function: blocking, callable from any thread. The default is getaddrinfo; tests pass in
// names that hang.
using LookUp = std::function<NetResult<std::vector<IpAddress>>(const std::string& host)>;
NetResult<std::vector<IpAddress>> look_up_by_getaddrinfo(const std::string& host);

// "10.0.0.1", "[fd00::1]", "fe80::1%eth0": the address that `host` spells. nullopt for names; never
// blocks.
std::optional<IpAddress> numeric_address(const std::string& host);

class Resolver {
 public:
  using Callback = std::function<void(NetResult<std::vector<SocketAddress>>)>;

  explicit Resolver(boost::asio::io_context& io, LookUp look_up = look_up_by_getaddrinfo);
  Resolver(Resolver&&) = delete;
  ~Resolver();  // pending callbacks are never called

  // Calls back once, from the loop and never from inside this call, with at least one address in
  // the resolver's order, or with name_unknown or resolver. Several look-ups may be in progress.
  void resolve(const std::string& host, uint16_t port, Deadline deadline, Callback callback);

 private:
  struct Pending;
  void start_thread(const std::shared_ptr<Pending>& pending);

  boost::asio::io_context& io_;
  LookUp look_up_;
  std::vector<std::shared_ptr<Pending>> pending_;
};

}  // namespace muster
