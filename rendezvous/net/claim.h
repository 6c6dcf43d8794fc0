// Elects the host of the rendezvous: the node that can bind the endpoint's port and reach itself
// there. Names cannot decide it (they resolve to loopback, to a service's address, to an address of
// another network), so a candidate listens, connects to the endpoint as any client would, and sends
// 16 random bytes. It is the host if they arrive at its own listener. It is not, and closes its
// listener, if the connection reaches another one or the port is taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/resolve.h"

namespace muster {

// The addresses to listen on for an endpoint. Pure.
struct ListenPlan {
  std::vector<SocketAddress> addresses;
  bool everywhere = false;  // on all addresses, so clients must be filtered
  friend bool operator==(const ListenPlan&, const ListenPlan&) = default;
};

// Returns where to listen for an endpoint whose name resolves to `resolved`:
// - `host` is loopback ("localhost", "127.0.0.1", "::1"): those of its addresses that are ours
// - all its addresses are ours, none is loopback: these
// - else everywhere, since the name resolves to loopback on its own host (Debian's 127.0.1.1) or to
//   an address in front of us (a Kubernetes service)
// `own`: the addresses of this machine's interfaces. REQUIRES: `resolved` is not empty.
ListenPlan plan_listening(const std::string& host, const std::vector<SocketAddress>& resolved,
                          const std::vector<IpAddress>& own);

struct Claim {
  std::unique_ptr<Listener> listener;  // open, not started
  SocketAddress reached;               // where our probe reached us: our address for other nodes
  bool everywhere = false;             // as in ListenPlan
};

struct NotHost {
  enum class Why {
    name_missing,   // the endpoint's name does not resolve (yet)
    port_taken,     // a process on this machine, most likely the host's agent, has the port
    cannot_listen,  // binding failed for another reason; see error_number
    somebody_else,  // another process, most likely on another machine, accepts connections there
    unreachable,    // nothing accepts connections there (yet)
  };
  Why why = Why::unreachable;
  int error_number = 0;
  std::string message;  // one line
};

struct ClaimOptions {
  Duration limit = std::chrono::seconds(5);  // for the whole election
  ListenOptions listen;
  LookUp look_up = look_up_by_getaddrinfo;
};

// One election in progress. Destroying the last copy cancels it; the callback is not called.
using Claiming = std::shared_ptr<void>;
using ClaimCallback = std::function<void(std::variant<Claim, NotHost>)>;

// Calls back once, from the loop, never from inside this call. Retrying is up to the caller.
[[nodiscard]] Claiming claim_endpoint(boost::asio::io_context& io, const std::string& host,
                                      uint16_t port, ClaimOptions options, ClaimCallback callback);

}  // namespace muster
