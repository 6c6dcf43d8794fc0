// Names to addresses without ever stopping the loop. getaddrinfo(3) cannot be interrupted and may
// hang for half a minute, so it runs in a helper thread of its own that nobody joins: when the
// deadline passes or the Resolver goes, the thread is left alone with its copy of the question and
// its answer is thrown away. A process never has more than kLookupsMax such threads. Numeric
// addresses need no thread. Nothing here, or anywhere else, looks an address up backwards.
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

// What a look-up is: blocking, callable from any thread. The default is getaddrinfo; tests hand in
// names that hang. Ports of the answer are ignored.
using LookUp = std::function<NetResult<std::vector<IpAddress>>(const std::string& host)>;
NetResult<std::vector<IpAddress>> look_up_by_getaddrinfo(const std::string& host);

// "10.0.0.1", "[fd00::1]", "fe80::1%eth0": the address that `host` spells. Nothing for names; never
// blocks.
std::optional<IpAddress> numeric_address(const std::string& host);

class Resolver {
 public:
  using Callback = std::function<void(NetResult<std::vector<SocketAddress>>)>;

  explicit Resolver(boost::asio::io_context& io, LookUp look_up = look_up_by_getaddrinfo);
  Resolver(Resolver&&) = delete;
  ~Resolver();  // pending callbacks are never called

  // Calls back once, from the loop and never from inside this call, with at least one address in
  // the resolver's order, or with name_unknown or resolver. Several look-ups may be under way.
  void resolve(const std::string& host, uint16_t port, Deadline deadline, Callback callback);

 private:
  struct Pending;
  void start_thread(const std::shared_ptr<Pending>& pending);

  boost::asio::io_context& io_;
  LookUp look_up_;
  std::vector<std::shared_ptr<Pending>> pending_;
};

}  // namespace muster
