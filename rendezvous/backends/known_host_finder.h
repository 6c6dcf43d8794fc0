// Finds the host, node rank 0, on a machine that all nodes know, at the first of several ports
// (job_ports.h) that is free there. The others dial them in turn, past other programs and other
// jobs' hosts, and resolve names anew for each dial. One thread: the loop's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/backends/host_finder.h"

namespace muster {

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
