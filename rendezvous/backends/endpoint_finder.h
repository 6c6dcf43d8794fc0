// Finds the host at an endpoint HOST:PORT that all nodes were given. A node first connects there;
// if nothing answers, at the start or later, it tries to become the host (claim.h): a restarted
// host or another agent of its machine takes the job up again. If the user chose the host, that
// node listens without an election, and the others never try. One thread: the loop's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/backends/host_finder.h"
#include "rendezvous/net/claim.h"
#include "rendezvous/net/resolve.h"

namespace muster {

class EndpointFinder : public HostFinder {
 public:
  // Port 0 REQUIRES: is_host.
  struct Options : HostFinder::Options {
    std::string host;
    Duration claim_limit = std::chrono::seconds(5);
    // How long to retry a port that is taken: the previous process may still be exiting.
    Duration taken_patience = std::chrono::seconds(1);
  };

  EndpointFinder(boost::asio::io_context& io, Options options, Handlers handlers);

  void cancel() override;

 private:
  void call(const HostRecord& nobody) override;
  void take(const Keeper::Seen& nothing) override;
  void claim();
  void listen_as_told();
  void on_resolved(const NetResult<std::vector<SocketAddress>>& addresses);
  void listen_at(const ListenPlan& plan);

  Options options_;
  Resolver resolver_;
  boost::asio::steady_timer retry_;
  std::optional<std::chrono::steady_clock::time_point> taken_since_;
  std::optional<IpAddress> meant_;
  bool port_is_held_here_ = false;  // The election found the port taken on this machine.
  Claiming claiming_;
};

// Finds the host, node rank 0, on a machine that all nodes know, at the first of several ports
// (job_ports.h) that is free there. The others dial them in turn, past other programs and other
// jobs' hosts, and resolve names anew for each dial. One thread: the loop's.
class KnownHostFinder : public HostFinder {
 public:
  // `port` is not used. REQUIRES: is_host is set, and there are ports.
  struct Options : HostFinder::Options {
    std::string host;  // A name, or addresses with commas between them.
    std::vector<uint16_t> ports;
    // How long one port of several may take to accept.
    Duration port_limit = std::chrono::milliseconds(1500);
  };

  KnownHostFinder(boost::asio::io_context& io, Options options, Handlers handlers);

  void answered_by_another() override { ++at_; }
  void hung_up() override { ++at_; }
  void silent() override { ++at_; }

 private:
  void call(const HostRecord& nobody) override;
  void call_port(size_t tried);
  void take(const Keeper::Seen& nothing) override;

  Options options_;
  std::vector<IpAddress> addresses_;  // Empty: `host` is a name.
  size_t at_ = 0;                     // The port to dial next, modulo their number.
};

}  // namespace muster
