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
#include <tl/expected.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/address.h"

namespace muster {

// The failure of a look-up or a connection: the kinds that callers treat differently, and a message
// for people. A name that does not exist yet (a pod that is being created) and a peer that does not
// listen yet are worth retrying until the join time-out. The others may be, but must be reported.
enum class NetFailure {
  name_unknown,  // the resolver says that there is no such name, or none with an address
  resolver,      // the resolver failed or did not answer in time
  refused,       // at least one address refused the connection
  timed_out,     // no address refused, and at least one did not answer before the deadline
  exhausted,     // this process or its machine has no descriptor left
  unreachable,   // all else: no route, no such family, not permitted
};

struct NetError {
  NetFailure failure = NetFailure::unreachable;
  std::string message;  // as in Error: the action, its target, and the outcome for each address
  bool refused_by_all = false;  // every address refused

  bool name_is_missing() const {
    return failure == NetFailure::name_unknown || failure == NetFailure::resolver;
  }
  Error error() const { return {ExitCode::rendezvous, message}; }

  friend bool operator==(const NetError&, const NetError&) = default;
};

template <typename T>
using NetResult = tl::expected<T, NetError>;

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
