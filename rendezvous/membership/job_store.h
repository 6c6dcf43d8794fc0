// The workers' store of one job at the place where that job wants it: behind the port that the
// agents use as well (its connections are then brought by adopt()), on a port of the user's, or on
// a fresh one for each round, so that no worker of an old round can ever reach a new one's. Owns
// the StoreServer and, unless the port is shared, its listener. One thread: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/error.h"
#include "rendezvous/net/address.h"
#include "rendezvous/store/store_server.h"

namespace muster {

class StoreListener;

class JobStore {
 public:
  struct Options {
    std::optional<int> shared_port;        // The port of the agents; nothing is bound here.
    std::vector<SocketAddress> addresses;  // Else: where to listen; their ports are not looked at.
    int port = 0;                          // 0: a fresh one for each round.
    std::function<void(const std::string&)> say;  // A stranger was refused; a port was in use.
  };

  // Why a round ends.
  struct FailureNotice {
    std::string text;         // Its first line is what workers read.
    bool is_failure = false;  // Rather than a wish: somebody failed or was lost.
    std::optional<int> rank;  // Global: who failed.
  };

  // Who may connect: nothing = anybody.
  using Allowed = std::optional<std::vector<Network>>;

  JobStore(boost::asio::io_context& io, Options options);
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;
  ~JobStore();

  // Binds a port of the user's now, so that one that is taken is known early. Does nothing for a
  // shared or a fresh port.
  Result<void> reserve();

  // A new, empty store; returns the port. Fails when the port cannot be bound.
  Result<int> open(uint64_t epoch, Allowed allowed);
  void close();
  // Says why the round that runs is to end, for workers that will be told to; the first reason
  // counts. Does nothing where no store is open. See kFailureNoticeKey.
  void leave_notice(const FailureNotice& notice);
  bool is_open() const { return server_.epoch().has_value(); }
  bool is_shared() const { return options_.shared_port.has_value(); }
  bool was_ever_open() const { return was_ever_open_; }

  // Of the shared port.
  void adopt(int fd, std::string_view already_read) { server_.adopt(fd, already_read); }

  std::string status() const { return server_.status(); }
  StoreServer::Counters counters() const { return server_.counters(); }

 private:
  void on_refused(const IpAddress& address);
  Result<int> listen();
  Result<int> listen_on_port(uint16_t port);

  boost::asio::io_context& io_;
  Options options_;
  std::string allowed_text_;  // For a refusal's line.
  StoreServer server_;
  std::vector<std::unique_ptr<StoreListener>> listeners_;  // All on one port.
  bool was_ever_open_ = false;
  bool has_notice_ = false;  // In the store that is open.
};

}  // namespace muster
