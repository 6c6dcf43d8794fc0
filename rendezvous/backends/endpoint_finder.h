// Finds the host at an endpoint HOST:PORT that all nodes were given. A node first connects there;
// if nothing answers it tries to become the host itself (claim.h), at the start as well as later,
// when the host is gone: so a restarted host takes the job up again, and so does another agent of
// the same machine. If the user chose the host, that node listens without an election, and the
// others never try. One thread: the loop's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/backends/host_finder.h"
#include "rendezvous/net/claim.h"
#include "rendezvous/net/connect.h"
#include "rendezvous/net/resolve.h"

namespace muster {

class EndpointFinder : public HostFinder {
 public:
  struct Options {
    std::string host;
    int port = 0;                 // 0: any free one; REQUIRES: is_host.
    std::optional<bool> is_host;  // nullopt: any node that can.
    Duration dial_limit = std::chrono::seconds(5);
    Duration claim_limit = std::chrono::seconds(5);
    // How long to retry a port that is taken: the previous process may still be exiting.
    Duration taken_patience = std::chrono::seconds(1);
    // Leases detect a silent connection; this, no shorter than a lease, detects a peer that is gone
    // for good.
    Duration dead_peer_after = std::chrono::seconds(30);
    LookUp look_up = look_up_by_getaddrinfo;
  };

  EndpointFinder(boost::asio::io_context& io, Options options, OnHost on_host);
  ~EndpointFinder() override;

  void dial(std::function<void(DialOutcome)> done) override;
  void cancel() override;
  void distrust() override { doubted_ = true; }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  ConnectOptions connect_options() const;
  void call();
  void on_called(NetResult<TcpSocket> socket);
  void claim(std::optional<NetError> why_not);
  void listen_as_told();
  void on_resolved(const NetResult<std::vector<SocketAddress>>& addresses);
  void listen_at(const ListenPlan& plan);
  void host(std::unique_ptr<Listener> listener, const SocketAddress& reached);
  void call_own_host();
  void finish(DialOutcome outcome);

  boost::asio::io_context& io_;
  Options options_;
  OnHost on_host_;
  Resolver resolver_;
  boost::asio::steady_timer retry_;
  std::optional<SocketAddress> own_host_;  // Set once we host.
  std::optional<SteadyTime> taken_since_;
  bool doubted_ = false;            // What answered last is no host; perhaps a forwarder to us.
  bool called_again_ = false;       // After an election that another node won.
  bool port_is_held_here_ = false;  // The election found the port taken on this machine.
  std::function<void(DialOutcome)> done_;
  Connecting connecting_;
  Claiming claiming_;
  std::shared_ptr<int> dial_;  // A new one for each dial: answers to an older one are dropped.
};

}  // namespace muster
