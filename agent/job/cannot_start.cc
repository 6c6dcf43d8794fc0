#include "agent/job/cannot_start.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "agent/job/rendezvous_options.h"
#include "agent/report/text.h"
#include "rendezvous/backends/rendezvous.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/stderr_line.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// The nodes of a job are started within a second or two of each other, or a bit more by hand.
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kSilence = std::chrono::seconds(1);
// A host answers once it is reached; this guards against one that does not.
constexpr auto kHostPatience = kPatience + std::chrono::seconds(2);
// The coordinator limits how long it stays; this guards against a bug in that limit.
constexpr auto kCloseLimit = std::chrono::seconds(20);

membership::NodeFailure final_failure(const Error& error) {
  membership::NodeFailure failure;
  failure.exit_code = static_cast<int>(error.code);
  failure.final = true;
  failure.sentence = error.message;
  return failure;
}

// Reports one failure to the other nodes, on an event loop of its own.
class Telling {
 public:
  explicit Telling(const Error& error) : failure_(final_failure(error)) {}

  void run(const RendezvousOptions& options) {
    Rendezvous::Handlers on;
    // If the host counts us as ready all the same, this is a failure of that round.
    on.round = [this](const membership::Round& round) {
      rendezvous_->tell(member::WorkerFailed{round.epoch, failure_});
    };
    on.stop = [](const member::StopWorkers&) {};
    on.leave_announced = [] {};
    on.ended = [this](const membership::End&) { leave(); };
    on.failed = [this](const Error& error) { give_up(error.message); };
    on.refused = [this](const Error& answer) {  // The host has told the waiting nodes.
      print_line(clean_message(answer.message));
      leave();
    };
    on.say = [](const std::string&) {};  // None of it concerns a node that takes no part.
    Result<std::unique_ptr<Rendezvous>> rendezvous = make_rendezvous(loop_, options, std::move(on));
    if (!rendezvous)
      return print_line("cannot inform the other nodes: " + rendezvous.error().message);
    rendezvous_ = std::move(*rendezvous);
    rendezvous_->tell(member::WorkerFailed{0, failure_});
    rendezvous_->tell(member::ReadyForRound{});
    call_after(silence_, kSilence, [] {
      print_line(fmt::format("informing the other nodes (at most {} s); a signal skips this",
                             kPatience.count()));
    });
    call_after(limit_, kHostPatience, [this] { give_up(rendezvous_->status()); });
    loop_.run();
  }

 private:
  void give_up(const std::string& why) {
    print_line("cannot inform the other nodes: " + why);
    leave();
  }

  void leave() {
    call_after(limit_, kCloseLimit, [this] { loop_.stop(); });
    rendezvous_->close([this] { loop_.stop(); });
  }

  const membership::NodeFailure failure_;
  boost::asio::io_context loop_{1};
  boost::asio::steady_timer silence_{loop_};
  boost::asio::steady_timer limit_{loop_};
  std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace

void tell_that_it_cannot_start(const LaunchSpec& spec, const Error& error) {
  const RendezvousSpec& rendezvous = spec.rendezvous;
  // A launcher whose PMI has to be asked ends the launch itself when one of its processes fails.
  if (!is_coordinated(rendezvous) || rendezvous.ask_pmi) return;
  NodeFacts node{1, own_hostname(), rendezvous.id, rendezvous.token.value_or(""), ""};
  if (rendezvous.token_file) {
    const Result<std::string> token = membership::read_token_file(*rendezvous.token_file);
    if (!token) return print_line("cannot inform the other nodes: " + token.error().message);
    node.token = *token;
  }
  RendezvousOptions options = rendezvous_options(spec, node);
  options.reach_timeout = kPatience;
  Telling(error).run(options);
}

}  // namespace muster
