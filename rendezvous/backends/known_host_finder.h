// Finds the host of a job whose node rank 0 hosts it, on a machine that all nodes know, at one of
// several ports (job_ports.h). The host listens at the first that is free; the others dial them in
// turn, and go on to the next one where another program answers, or the host of another job. Names
// are resolved anew for each dial. One thread: the loop's.
#pragma once

#include <cstdint>
#include <memory>
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
    // How long one port may take to accept, if there are others.
    Duration port_limit = std::chrono::milliseconds(1500);
  };

  KnownHostFinder(boost::asio::io_context& io, Options options, Handlers handlers);

  void distrust() override { ++at_; }
  void doubt() override { ++at_; }
  void hear_nothing() override { ++at_; }

 private:
  void call(const HostRecord& nobody) override;
  void call_port(size_t tried);
  void take(const Keeper::Seen& nothing) override;

  Options options_;
  std::vector<IpAddress> addresses_;  // Empty: `host` is a name.
  size_t at_ = 0;                     // Which port is dialled next, modulo their number.
};

}  // namespace muster
