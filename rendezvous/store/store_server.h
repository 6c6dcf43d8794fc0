// The store's sockets: reads what is available, answers all of it, writes once. Serves connections
// accepted elsewhere (the membership protocol shares the port) or by a StoreListener. Runs on the
// owner's io_context, in one thread. The connections are in an epoll set of their own, whose one
// descriptor Asio watches: an idle connection costs about a hundred bytes (no buffer, no pending
// operation), and a read is made only when there is something to read.
//
// The cost of a bad client to others is bounded: at most request_bytes_max of its input is held; a
// client that does not read its answers is not read from; unfinished requests and unread answers
// have a common limit, at which the connection that holds most is closed; a turn lasts about a
// millisecond; ReadyOrder limits what one visit reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/places.h"
#include "rendezvous/store/ready_order.h"
#include "rendezvous/store/store_machine.h"
#include "rendezvous/store/wake_fan_out.h"

namespace muster {

class StoreServer {
 public:
  struct Options {
    StoreMachine::Options machine;  // hash_seed is drawn anew for each epoch.
    size_t request_bytes_max = tcpstore::kRequestBytesMax;
    // With this much in unread answers, a connection's further requests wait.
    size_t unsent_bytes_max = size_t{256} << 10;
    // Limit for the unfinished requests and unread answers of all connections together.
    size_t held_bytes_max = size_t{1} << 30;
    // Called when an address that is not allowed connects, once each for the first 16.
    std::function<void(const IpAddress&)> on_refused;
    // Called once for each connection whose address is allowed; nothing is read from it until
    // decide() is called, at once or later. Null: all are admitted.
    std::function<void(int fd, uint64_t client)> examine;
    // Called before a connection is closed because the store cannot hold what it sent.
    std::function<void(int fd)> on_full;
    // Called whenever a connection has been served while clients wait for keys.
    std::function<void()> on_waiting;
  };

  struct Counters {
    uint64_t adopted = 0;
    uint64_t requests = 0;
    uint64_t refused = 0;             // Refused by address or by decide().
    uint64_t refused_closed = 0;      // Arrived while no store was open.
    uint64_t handshake_timeouts = 0;  // Never sent VALIDATE.
    uint64_t evicted = 0;             // Held the most when held_bytes_max was exceeded.
    std::array<uint64_t, tcpstore::kBreaches> breaches{};
    size_t connections = 0;  // This and the rest are current values.
    size_t keys = 0;
    size_t waiting = 0;
    size_t stored_bytes = 0;
    size_t held_bytes = 0;
  };

  // Throws if the kernel refuses a descriptor, as Asio's own constructors do.
  StoreServer(boost::asio::io_context& io, Options options);
  StoreServer(StoreServer&&) = delete;
  ~StoreServer();

  // Closes any previous store and starts an empty one.
  void open(uint64_t epoch);
  // Closes all connections and drops all keys. Until the next open(), arrivals are closed at once.
  void close();
  std::optional<uint64_t> epoch() const { return epoch_; }

  // Sets a key as a client without a prefix would. No-op if no store is open.
  void put(std::string_view key, std::string_view value);

  // Sets the networks that may connect (nullopt: any). Closes connections from all others.
  void set_allowed(std::optional<std::vector<Network>> allowed);

  // Takes ownership of a connected non-blocking TCP socket and what was already read from it.
  // Closes it if no store is open or its address is not allowed. Holds `place` while it is open.
  void adopt(int fd, std::string_view already_read = {}, Place place = {});

  // Closes the oldest connection that has not sent VALIDATE; false if there is none.
  bool drop_half_open();
  bool has_half_open() { return machine_ && machine_->oldest_half_open(); }

  // Admits or closes the connection that examine() reported. Returns false if it is already closed
  // (by close() or set_allowed()), or if a refused client has hung up.
  bool decide(uint64_t client, bool may_come);

  // Returns what clients wait for, and where these are; `told` are first keys of earlier waits: one
  // that is not waited for any more is told once more, without clients.
  std::vector<AwaitedKeys> awaited(const std::vector<std::string>& told) const;

  Counters counters() const;
  std::string status() const;

 private:
  struct Connection;
  struct Backlog;
  struct Undecided {
    UniqueFd fd;
    std::string already_read;
    Place place;
  };
  enum class Fate { keep, close };

  void arm();
  void turn();
  bool step();
  bool is_lingering() const;
  bool look_who_is_ready();
  Connection* find(uint64_t tag);
  void settle(Connection& connection, Fate fate);
  Fate on_readable(Connection& connection, size_t share);
  Fate on_writable(Connection& connection);
  Fate serve(Connection& connection, std::string_view input);
  Fate defer(Connection& connection, std::string_view input);
  Fate flush(Connection& connection);
  void wake_others();
  void account(Connection& connection);
  void evict_largest();
  bool watch(const Connection& connection, int operation, uint32_t events);
  void drop(Connection& connection);
  Connection& free_slot();
  bool is_allowed(int fd);
  void admit(int fd, std::string_view already_read, Place place);
  void report_stranger(const IpAddress& address);
  void arm_handshake_timer();
  void drop_late();

  boost::asio::io_context& io_;
  Options options_;
  boost::asio::posix::stream_descriptor epoll_;
  boost::asio::steady_timer handshake_timer_;
  Instant handshake_armed_ = kNever;
  std::optional<uint64_t> epoch_;
  std::optional<std::vector<Network>> allowed_;
  std::set<IpAddress> strangers_;
  std::unique_ptr<StoreMachine> machine_;  // Not null iff epoch_ is set.

  // Indexed by slot, which is the machine's ClientId.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<uint32_t> free_slots_;
  std::map<uint64_t, Undecided> undecided_;
  uint64_t last_client_ = 0;
  size_t held_bytes_ = 0;
  Counters counters_;

  ReadyOrder order_;  // Its tags are epoll_tag()s.
  Instant linger_until_{};

  // Scratch state of the visit in progress.
  std::unique_ptr<char[]> scratch_;
  tcpstore::Request request_;
  StoreEffects effects_;
  std::vector<WakeFanOut::Wake> wakes_;
  std::shared_ptr<bool> alive_;  // False once destroyed; handlers may still be queued.
};

}  // namespace muster
