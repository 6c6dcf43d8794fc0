// The port that all nodes know. Accepts in batches, identifies each connection by its first bytes
// and hands it to the store, to the agents' handler, or answers it (a probe); closes the rest and
// reports the first few. One thread: the loop's.
//
// A connection is half-open until the store has it or its agent is authenticated (proved()). If
// there are too many half-open ones or too many in all, each new one evicts a half-open one
// (HalfOpen) that is at least least_life old; without one, new connections wait in the kernel's
// backlog. Out of descriptors, accepting pauses instead of spinning.
//
// A Listener answers probes as soon as it is open, but hands over nothing until start(). Earlier
// connections are held (bounded), so no handler sees clients of a listener that loses its election.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <tl/expected.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listening_socket.h"
#include "rendezvous/net/places.h"

namespace muster {

// An identified connection (non-blocking, CLOEXEC, TCP_NODELAY); `bytes` were already read from it.
struct Arrival {
  UniqueFd fd;
  std::string bytes;
  SocketAddress peer;
  uint64_t id = 0;   // Unique and ascending per listener.
  Place place = {};  // The owner keeps this and half_open as long as the connection is open.
  std::shared_ptr<void> half_open = {};  // Its entry in HalfOpen; null for a client of the store.
};

struct Stranger {
  SocketAddress peer;
  std::string description;  // "a TLS client"; see describe_stranger()
};

struct ListenOptions {
  std::string agent_magic = "MSTR";
  Duration handshake_limit = std::chrono::seconds(10);
  size_t half_open_max = 4096;
  std::shared_ptr<Places> places;                       // for all connections; null: no limit
  Duration least_life = std::chrono::milliseconds(20);  // of a half-open connection
  int accepts_per_turn = 64;
  Duration exhausted_pause = std::chrono::milliseconds(100);
};

struct ListenHandlers {
  std::function<void(Arrival)> store;
  std::function<void(Arrival)> agent;
  // Must close this agent's connection, handed over but still half-open, at once.
  std::function<void(uint64_t id)> crowded_out;
  std::function<void(const Stranger&)> stranger;  // once per address, for the first few
  // Out of descriptors or places; number of connections crowded out. Each at most once a minute.
  std::function<void(const std::string& message)> trouble;
};

struct ListenCounters {
  uint64_t accepted = 0, stores = 0, agents = 0, probes = 0, strangers = 0;
  uint64_t timed_out = 0;    // sent too little before the handshake deadline
  uint64_t crowded_out = 0;  // half-open, closed to make room
  uint64_t closed_early = 0, exhausted = 0;
};

class Listener {
 public:
  // Binds as listen_on() does; answers probes from then on.
  static tl::expected<std::unique_ptr<Listener>, ListenError> open(
      boost::asio::io_context& io, const std::vector<SocketAddress>& addresses,
      ListenOptions options = {});

  Listener(Listener&&) = delete;
  ~Listener();  // closes what was not handed over

  void start(ListenHandlers handlers);
  void close();  // idempotent

  uint16_t port() const;
  SocketAddress local_endpoint() const;                // of the first socket
  std::vector<SocketAddress> local_endpoints() const;  // of all
  const ListenCounters& counters() const;
  size_t unidentified() const;  // connections that are not identified yet
  const std::shared_ptr<Places>& places() const;

  // Marks an agent's connection as authenticated: it is not crowded out any more.
  void proved(uint64_t id);

  // Sets `is_ours`, which decides the answer to each probe of a host election (claim.h).
  void on_probe(std::function<bool(std::string_view nonce)> is_ours);

 private:
  struct State;
  explicit Listener(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace muster
