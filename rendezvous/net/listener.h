// The port that all nodes know. Accepts in batches, reads the first bytes of each connection and
// hands the socket to its handler: the store, the agents' protocol, or an election's probe.
// Strangers are closed, and the first few reported. One thread: the loop's.
//
// A connection is half-open until the store has it or its agent has proved who it is (proved()).
// Where half-open ones or all connections become too many, one of the half-open ones is closed for
// each that comes (HalfOpen), no earlier than its least_life; until then, and while there is no
// half-open one, others wait in the kernel's queue. When the process is out of descriptors,
// accepting pauses instead of spinning.
//
// A Listener answers probes as soon as it is open, but hands over nothing until start(). Earlier
// connections are held (bounded), so no handler sees callers of a listener that loses its election.
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
  uint64_t id = 0;   // Of this connection at its listener; grows.
  Place place = {};  // These two are held by its owner as long as the connection is open.
  std::shared_ptr<void> half_open = {};  // Of an agent; null for a client of the store.
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
  // An agent's connection that was handed over and is half-open has to be closed, at once.
  std::function<void(uint64_t id)> crowded_out;
  std::function<void(const Stranger&)> stranger;  // once per address, for the first few
  // Out of descriptors, or of places; and how many were crowded out. Each at most once a minute.
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
  // Binds as listen_on() does, and answers probes from then on.
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

  // The agent with this connection has proved who it is: nothing crowds it out any more.
  void proved(uint64_t id);

  // For the election (claim.h): called with the nonce of each probe; returns true if it is ours.
  // The answer is sent to the prober.
  void on_probe(std::function<bool(std::string_view nonce)> is_ours);

 private:
  struct State;
  explicit Listener(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace muster
