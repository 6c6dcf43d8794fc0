#include "rendezvous/backends/host_finder.h"

#include <utility>
#include <variant>

#include "rendezvous/base/text.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kRetirePatience = std::chrono::milliseconds(500);

member::ConnectionFailed failure_of(const hosting::NotFound& effect) {
  const bool fatal = effect.error.code == ExitCode::environment;
  return {effect.error, effect.refused, fatal, effect.ending};
}

hosting::Called::How how_of(const NetError& error) {
  if (error.name_is_missing()) return hosting::Called::How::no_name;
  return error.failure == NetFailure::refused ? hosting::Called::How::refused
                                              : hosting::Called::How::silent;
}

// Limit of each text that is written for nodes that come too late.
constexpr size_t kEndingBytesMax = 4096;

Hosting::Options completed(Hosting::Options machine, const HostFinder::Options& options) {
  machine.may_host = options.is_host;
  machine.agent = options.agent;
  return machine;
}

membership::End ending_of(const membership::End& end) {
  return {.why = end.why,
          .exit_code = end.exit_code,
          .signal = end.signal,
          .host_name = printable(end.host_name, kEndingBytesMax),
          .text = printable(end.text, kEndingBytesMax)};
}

}  // namespace

HostFinder::HostFinder(boost::asio::io_context& io, const Options& options,
                       Hosting::Options machine, Handlers handlers)
    : io_(io),
      dial_limit_(options.dial_limit),
      handlers_(std::move(handlers)),
      machine_(completed(std::move(machine), options)),
      drive_(io, machine_, [this](const Hosting::Effect& effect) { perform(effect); }),
      retire_timer_(io) {
  connect_options_.dead_peer_after = options.dead_peer_after;
  connect_options_.look_up = options.look_up;
}

Hosting::Options HostFinder::without_keeper(const std::string& place) {
  Hosting::Options machine;
  machine.has_keeper = false;
  machine.place = place;
  return machine;
}

void HostFinder::dial(bool reaped, std::function<void(DialOutcome)> done) {
  cancel();
  done_ = std::move(done);
  dial_ = std::make_shared<int>(0);
  drive_.post(hosting::Wanted{reaped});
}

void HostFinder::cancel() {
  done_ = nullptr;
  dial_.reset();
  connecting_ = Connecting();
  called_.reset();
  drive_.post(hosting::Dropped{});
}

void HostFinder::perform(const Hosting::Effect& effect) {
  struct Perform {
    HostFinder& self;
    void operator()(const hosting::Look&) const { self.look(); }
    void operator()(const hosting::Await& e) const { self.await(e); }
    void operator()(const hosting::Call& e) const {
      self.called_instance_ = e.host.instance;
      self.call(e.host);
    }
    void operator()(const hosting::Take& e) const { self.take(e.seen); }
    void operator()(const hosting::Found&) const {
      if (self.own_host_) return self.call_own_host();
      Dialled dialled{std::move(*self.called_), std::nullopt, false};
      if (self.called_instance_ != 0) dialled.host_instance = self.called_instance_;
      self.called_.reset();
      self.finish(std::move(dialled));
    }
    void operator()(const hosting::NotFound& e) const {
      self.finish(tl::unexpected(failure_of(e)));
    }
    void operator()(const hosting::Host& e) const { self.start_hosting(e); }
    void operator()(const hosting::Beat&) const { self.beat(); }
    void operator()(const hosting::Write& e) const { self.write(e); }
    void operator()(const hosting::RoundGranted& e) const { self.handlers_.granted(e.epoch); }
    void operator()(const hosting::EndingGranted&) const { self.handlers_.ending_granted(); }
    void operator()(const hosting::StepDown&) const {
      self.own_host_.reset();
      self.handlers_.step_down();
    }
    void operator()(const hosting::Leave&) const { self.leave(); }
    void operator()(const hosting::Retire&) const { self.on_retired(); }
    void operator()(const hosting::Say& e) const { self.handlers_.say(e.text); }
  };
  std::visit(Perform{*this}, effect);
}

void HostFinder::finish(DialOutcome outcome) {
  const std::function<void(DialOutcome)> done = std::exchange(done_, nullptr);
  if (done) done(std::move(outcome));
}

void HostFinder::on_called(NetResult<TcpSocket> socket) {
  if (!socket) return post(hosting::Called{how_of(socket.error()), socket.error().error()});
  called_.emplace(std::move(*socket));
  post(hosting::Called{hosting::Called::How::answered, {}});
}

void HostFinder::on_won(std::unique_ptr<Listener> listener, uint64_t instance,
                        std::optional<SocketAddress> reached,
                        std::optional<IpAddress> endpoint_here) {
  won_ = {std::move(listener), instance, {}, endpoint_here};
  reached_ = reached;
  post(hosting::Taken{hosting::Taken::How::won, {}});
}

void HostFinder::on_not_taken(hosting::Taken::How how, Error error) {
  post(hosting::Taken{how, std::move(error)});
}

void HostFinder::start_hosting(const hosting::Host& effect) {
  own_host_ = reached_.value_or(won_.listener->local_endpoint());
  if (own_host_->ip.is_any()) own_host_->ip = IpAddress::loopback_v4();
  own_instance_ = won_.instance;
  won_.past = {effect.job, effect.expected};
  handlers_.host(std::move(won_));
  if (done_) call_own_host();
}

void HostFinder::call_own_host() {
  connecting_ = connect_any(
      io_, own_host_->to_string(), {*own_host_}, dial_deadline(), connect_options_,
      [this](NetResult<TcpSocket> socket) {
        if (!socket)
          return finish(tl::unexpected(member::ConnectionFailed{socket.error().error()}));
        Dialled dialled{std::move(*socket), std::nullopt, true};
        if (own_instance_ != 0) dialled.host_instance = own_instance_;
        finish(std::move(dialled));
      });
}

void HostFinder::want_round(const membership::Formed& round, uint64_t instance) {
  JobRecord job;
  static_cast<membership::Formed&>(job) = round;
  job.instance = instance;
  post(hosting::RoundWanted{std::move(job)});
}

void HostFinder::want_ending(const membership::End& end) {
  post(hosting::Ended{ending_of(end)});
}

void HostFinder::retire(std::function<void()> done) {
  cancel();
  retired_ = std::move(done);
  call_after(retire_timer_, kRetirePatience, [this] { on_retired(); });
  post(hosting::Retired{});
}

void HostFinder::on_retired() {
  retire_timer_.cancel();
  if (const auto done = std::exchange(retired_, nullptr)) done();
}

}  // namespace muster
