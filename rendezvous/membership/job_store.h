// The workers' store of one job: behind the agents' port (adopt() brings its connections), on the
// user's port, or on a fresh one for each round, out of reach of an old round's workers. Owns the
// StoreServer and, unless the port is shared, its listeners. One thread: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/membership/client_check.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/places.h"
#include "rendezvous/store/store_listener.h"

namespace muster {

class JobStore {
 public:
  struct Options {
    std::optional<int> shared_port;               // The agents' port; nothing is bound here.
    std::vector<SocketAddress> addresses;         // Where to listen otherwise; ports are ignored.
    int port = 0;                                 // 0: a fresh one for each round.
    std::shared_ptr<Places> places;               // Limits the connections; null: no limit.
    size_t bytes_max = size_t{1} << 30;           // Keys and values: --store-limit.
    std::function<void(const std::string&)> say;  // Prints a line on a refused client.
    // Called with a line for the user, once for each round in which the store is full.
    std::function<void(const std::string&)> on_full;
    // Called with the open store's epoch once a second while clients wait, and once after that;
    // see StoreServer::awaited(). Null: never.
    std::function<void(uint64_t epoch, std::vector<AwaitedKeys>)> on_awaited;
    ClientCheck::Options clients;
    // Called for a client of another machine; decide() must follow. Null: its address is enough.
    std::function<void(uint64_t client, const SocketAddress& from, const SocketAddress& store)> ask;
  };

  // Why a round ends.
  struct FailureNotice {
    std::string text;         // Its first line is what workers read.
    bool is_failure = false;  // A worker failed or a node was lost; else stopped.
    std::optional<int> rank;  // Global rank that failed.
  };

  // The networks that may connect; nullopt: any.
  using Allowed = std::optional<std::vector<Network>>;

  JobStore(boost::asio::io_context& io, Options options);
  JobStore(JobStore&&) = delete;

  // Binds a port chosen by the user now, so that a conflict shows early. No-op for other ports.
  Result<void> reserve();

  // Opens a new, empty store; returns the port. Fails if the port cannot be bound.
  Result<int> open(uint64_t epoch, Allowed allowed);
  void close();
  void admit(uid_t uid) { clients_.admit(uid); }  // See ClientCheck.
  // See StoreServer.
  bool decide(uint64_t client, bool may_come) { return server_.decide(client, may_come); }
  // Stores why the running round ends, for workers that are about to be stopped; the first reason
  // counts. No-op unless a store is open. See kFailureNoticeKey.
  void leave_notice(const FailureNotice& notice);
  bool is_open() const { return server_.epoch().has_value(); }
  bool is_shared() const { return options_.shared_port.has_value(); }
  bool was_ever_open() const { return was_ever_open_; }

  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  // Takes a connection of the shared port.
  void adopt(Arrival arrival) {
    server_.adopt(arrival.fd.release(), arrival.bytes, std::move(arrival.place));
  }

  std::string status() const { return server_.status(); }
  StoreServer::Counters counters() const { return server_.counters(); }

 private:
  void examine(int fd, uint64_t client);
  void on_refused(const IpAddress& address);
  void on_full(int fd);
  void look_at_waits_soon();
  void look_at_waits();
  Result<void> listen();

  boost::asio::io_context& io_;
  Options options_;
  std::string allowed_text_;  // Shown in refusals.
  ClientCheck clients_;
  StoreServer server_;
  std::vector<std::unique_ptr<StoreListener>> listeners_;  // All on one port.
  boost::asio::steady_timer waits_timer_;
  bool looks_at_waits_ = false;    // Only while clients wait: an idle job wakes for nothing.
  std::vector<std::string> told_;  // First keys of the waits in the last call of on_awaited.
  bool was_ever_open_ = false;
  bool has_notice_ = false;  // The open store holds a notice.
  bool is_full_ = false;     // on_full was called for this round.
};

}  // namespace muster
