#include "rendezvous/backends/rendezvous.h"

#include <algorithm>
#include <utility>

#include "rendezvous/backends/endpoint_finder.h"
#include "rendezvous/backends/file_finder.h"
#include "rendezvous/backends/joined_rendezvous.h"
#include "rendezvous/backends/solo_rendezvous.h"
#include "rendezvous/backends/threaded_rendezvous.h"

namespace muster {
namespace {

Result<std::unique_ptr<Rendezvous>> make_endpoint_rendezvous(boost::asio::io_context& io,
                                                             const RendezvousOptions& options,
                                                             Rendezvous::Handlers handlers) {
  if (options.port == 0 && !options.is_host.value_or(false)) {
    return fail(ExitCode::usage,
                "an endpoint that several nodes share needs a port, for instance " + options.host +
                    ":29400");
  }
  return JoinedRendezvous::make(
      io, options, std::move(handlers),
      [&options](boost::asio::io_context& loop, uint64_t, HostFinder::OnHost on_host) {
        EndpointFinder::Options finder;
        finder.host = options.host;
        finder.port = options.port;
        finder.is_host = options.is_host;
        finder.dead_peer_after = std::max(finder.dead_peer_after, options.join.lease);
        return std::make_unique<EndpointFinder>(loop, std::move(finder), std::move(on_host));
      });
}

Result<std::unique_ptr<Rendezvous>> make_file_rendezvous(boost::asio::io_context& io,
                                                         const RendezvousOptions& options,
                                                         Rendezvous::Handlers handlers) {
  return JoinedRendezvous::make(
      io, options, std::move(handlers),
      [&options](boost::asio::io_context& loop, uint64_t instance, HostFinder::OnHost on_host) {
        FileFinder::Options finder;
        finder.path = options.host;
        finder.port = options.port;
        finder.instance = instance;
        finder.host_name = options.join.host_name;
        finder.is_host = options.is_host;
        finder.local_addr = options.local_addr;
        finder.interface = options.interface;
        finder.dead_peer_after = std::max(finder.dead_peer_after, options.join.lease);
        return std::make_unique<FileFinder>(loop, std::move(finder), std::move(on_host));
      });
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> make_rendezvous(boost::asio::io_context& loop,
                                                    RendezvousOptions options,
                                                    Rendezvous::Handlers handlers) {
  return ThreadedRendezvous::start(
      loop, std::move(handlers), [&options](boost::asio::io_context& io, Rendezvous::Handlers on) {
        switch (options.way) {
          case RendezvousOptions::Way::solo:
            return SoloRendezvous::make(io, options, std::move(on));
          case RendezvousOptions::Way::endpoint:
            return make_endpoint_rendezvous(io, options, std::move(on));
          case RendezvousOptions::Way::file:
            return make_file_rendezvous(io, options, std::move(on));
        }
        return Result<std::unique_ptr<Rendezvous>>(fail(ExitCode::internal, "no such way to meet"));
      });
}

}  // namespace muster
