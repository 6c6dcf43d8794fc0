#include "rendezvous/backends/rendezvous.h"

#include <utility>

#include "rendezvous/backends/joined_rendezvous.h"
#include "rendezvous/backends/solo_rendezvous.h"
#include "rendezvous/backends/threaded_rendezvous.h"

namespace muster {

Result<std::unique_ptr<Rendezvous>> make_rendezvous(boost::asio::io_context& loop,
                                                    RendezvousOptions options,
                                                    Rendezvous::Handlers handlers) {
  return ThreadedRendezvous::start(
      loop, std::move(handlers), [&options](boost::asio::io_context& io, Rendezvous::Handlers on) {
        return options.way == RendezvousOptions::Way::solo
                   ? SoloRendezvous::make(io, options, std::move(on))
                   : JoinedRendezvous::make(io, options, std::move(on));
      });
}

}  // namespace muster
