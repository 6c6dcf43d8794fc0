#include "rendezvous/backends/host_finder.h"

#include <utility>

namespace muster {

HostFinder::HostFinder(boost::asio::io_context& io, const Options& options, OnHost on_host)
    : io_(io),
      dial_limit_(options.dial_limit),
      instance_(options.instance),
      on_host_(std::move(on_host)) {
  connect_options_.dead_peer_after = options.dead_peer_after;
  connect_options_.look_up = options.look_up;
}

void HostFinder::dial(std::function<void(DialOutcome)> done) {
  cancel();
  done_ = std::move(done);
  dial_ = std::make_shared<int>(0);
  own_host_ ? call_own_host() : find();
}

void HostFinder::cancel() {
  done_ = nullptr;
  dial_.reset();
  connecting_ = Connecting();
}

void HostFinder::finish(DialOutcome outcome) {
  const std::function<void(DialOutcome)> done = std::exchange(done_, nullptr);
  if (done) done(std::move(outcome));
}

void HostFinder::fail_dial(Error error, bool refused) {
  const bool fatal = error.code == ExitCode::environment;
  finish(tl::unexpected(member::ConnectionFailed{std::move(error), refused, fatal}));
}

void HostFinder::host(std::unique_ptr<Listener> listener, std::optional<SocketAddress> reached) {
  own_host_ = reached.value_or(listener->local_endpoint());
  if (own_host_->ip.is_any()) own_host_->ip = IpAddress::loopback_v4();
  on_host_(std::move(listener));
  call_own_host();
}

void HostFinder::call_own_host() {
  connecting_ = connect_any(io_, own_host_->to_string(), {*own_host_}, dial_deadline(),
                            connect_options_, [this](NetResult<TcpSocket> socket) {
                              if (socket)
                                return finish(Dialled{std::move(*socket), instance_, true});
                              fail_dial(socket.error().error());
                            });
}

}  // namespace muster
