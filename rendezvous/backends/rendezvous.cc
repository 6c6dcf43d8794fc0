#include "rendezvous/backends/rendezvous.h"

#include "rendezvous/backends/joined_rendezvous.h"
#include "rendezvous/backends/solo_rendezvous.h"
#include "rendezvous/backends/threaded_rendezvous.h"
#include "rendezvous/net/interfaces.h"

namespace muster {

Result<std::unique_ptr<Rendezvous>> make_rendezvous(boost::asio::io_context& loop,
                                                    RendezvousOptions options,
                                                    Rendezvous::Handlers handlers) {
  const Result<bool> brought_up = bring_loopback_up();
  if (!brought_up && options.way == RendezvousOptions::Way::solo)
    return tl::unexpected(brought_up.error());
  if (!brought_up) handlers.say(brought_up.error().message);
  if (brought_up.value_or(false))
    handlers.say("the loopback interface was down here; muster has brought it up");
  return ThreadedRendezvous::start(
      loop, std::move(handlers), [&options](boost::asio::io_context& io, Rendezvous::Handlers on) {
        return options.way == RendezvousOptions::Way::solo
                   ? SoloRendezvous::make(io, options, std::move(on))
                   : JoinedRendezvous::make(io, options, std::move(on));
      });
}

}  // namespace muster
