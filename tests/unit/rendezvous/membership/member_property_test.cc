// Properties of the agent's machine under random sequences of events from its shell, its host and
// its workers; rapidcheck draws and shrinks them. Unlike the simulator's host, this one may send
// anything in any order.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/rendezvous/membership/member_harness.h"

namespace muster {
namespace {

using membership::Epoch;
using membership::Phase;
using std::chrono::milliseconds;

// Mirrors what the shell and the agent know, and checks invariants at every step.
class LegalAgent {
 public:
  void say(const Member::Event& event) {
    const bool was_over = driver_.machine().over();
    for (const Member::Effect& effect : driver_.step(event)) {
      RC_ASSERT(!was_over);
      std::visit([this](const auto& e) { on(e); }, effect);
    }
    if (driver_.machine().over()) RC_ASSERT(driver_.waits_for_ever());
    RC_ASSERT(driver_.status().find('\n') == std::string::npos);
  }

  // Performs one possible event, picked by two drawn numbers.
  void act(unsigned what, unsigned which);

 private:
  template <typename T>
  void on(const T&) {}
  void on(const member::Connect&) {
    RC_ASSERT(!connecting_ && !connected_);
    connecting_ = true;
  }
  void on(const member::Disconnect&) { connecting_ = connected_ = welcomed_ = false; }
  void on(const member::Send& send) {
    RC_ASSERT(connected_ && welcomed_);
    const auto* report = std::get_if<membership::Report>(&send.message);
    if (report == nullptr) return;
    RC_ASSERT(report->sequence == reports_ + 1);
    reports_ = report->sequence;
    RC_ASSERT(report->reaped == !alive_);
    if (report->phase == Phase::ready || report->phase == Phase::done) RC_ASSERT(!alive_);
    RC_ASSERT(report->epoch >= epoch_);
  }
  void on(const member::RoundFormed& e) {
    RC_ASSERT(!alive_ && !leaving_ && !ended_);
    RC_ASSERT(e.round.epoch > epoch_);
    epoch_ = e.round.epoch;
    alive_ = true;
    done_ = failed_ = false;
  }
  void on(const member::StopWorkers& e) {
    RC_ASSERT(e.epoch == epoch_ && (alive_ || done_));
    RC_ASSERT(stopped_.insert(e.epoch).second);
  }
  void on(const member::JobEnded&) {
    RC_ASSERT(!ended_);
    ended_ = true;
  }
  void on(const member::LeaveAnnounced&) {
    RC_ASSERT(leaving_ && !announced_);
    announced_ = true;
  }
  void on(const member::GaveUp&) { RC_ASSERT(!ended_ && !leaving_); }

  void tick(bool early);
  void connect(unsigned which);
  void hear(unsigned which);
  void work(unsigned which);

  MemberDriver driver_;
  bool connecting_ = false;
  bool connected_ = false;
  bool welcomed_ = false;
  bool alive_ = false;
  bool done_ = false;
  bool failed_ = false;  // In this epoch.
  bool leaving_ = false;
  bool announced_ = false;
  bool ended_ = false;
  Epoch epoch_ = 0;
  uint64_t reports_ = 0;
  std::set<Epoch> stopped_;
};

// A Tick before the deadline does nothing; one at the deadline leaves a later deadline.
void LegalAgent::tick(bool early) {
  if (driver_.waits_for_ever()) return;
  const Duration wait = driver_.until_deadline();
  if (early && wait > milliseconds{1}) {
    driver_.pass(wait / 2);
    const Instant deadline = driver_.machine().next_deadline();
    if (driver_.now() >= deadline) return;
    RC_ASSERT(driver_.step(member::Tick{}).empty());
    RC_ASSERT(driver_.machine().next_deadline() == deadline);
    return;
  }
  driver_.pass(std::max(Duration::zero(), wait + milliseconds{1}));
  say(member::Tick{});
  RC_ASSERT(driver_.machine().next_deadline() > driver_.now());
}

void LegalAgent::connect(unsigned which) {
  if (connecting_) {
    connecting_ = false;
    if (which % 4 == 0) {
      return say(member::ConnectionFailed{{ExitCode::rendezvous, "no"}, which % 8 == 0, false});
    }
    connected_ = true;
    return say(member::ConnectionUp{"10.0.0.1", "10.0.0.2"});
  }
  if (!connected_) return;
  if (which % 3 != 0 && !welcomed_) {
    welcomed_ = true;
    return say(member::Received{membership::Welcome{.host_instance = 1 + which % 2,
                                                    .lease = milliseconds{900},
                                                    .heartbeat = milliseconds{300}}});
  }
  if (which % 7 != 0) return;
  connected_ = welcomed_ = false;
  say(connection_lost("reset"));
}

void LegalAgent::hear(unsigned which) {
  if (!connected_) return;
  const uint64_t sequence = which / 16 % 40;
  const Epoch epoch = which / 1024 % 8;
  membership::Order order{sequence, membership::Wait{}};
  switch (which % 16) {
    case 0:
      order.what = membership::End{};
      break;
    case 1:
    case 2:
    case 3:
      return say(member::Received{membership::Alive{sequence}});
    case 4:
    case 5:
    case 6:
    case 7:
      order.what = membership::Stop{epoch, membership::StopWhy::lost, "lost"};
      break;
    case 8:
      if (which / 16 % 16 != 0) break;
      return say(member::Received{membership::Refused{membership::RefusalKind::rank_taken, "no"}});
    default:
      order.what = round_of(epoch);
  }
  say(member::Received{order});
}

void LegalAgent::work(unsigned which) {
  switch (which % 7) {
    case 0:
      if (!alive_) return;
      alive_ = false;
      done_ = !stopped_.contains(epoch_) && !leaving_ && !ended_ && !failed_;
      if (done_) return say(member::WorkersDone{epoch_});
      [[fallthrough]];
    case 1:
      alive_ = done_ = false;
      if (leaving_) return say(member::Leaving{15, true});
      return say(member::ReadyForRound{});
    case 2:
      if (!alive_) return;
      failed_ = true;
      return say(member::WorkerFailed{epoch_, a_failure()});
    case 3:
      if (which % 60 != 3) return;
      leaving_ = true;
      return say(member::Leaving{15, !alive_});
    case 4:
      if (alive_ && !stopped_.contains(epoch_)) return;
      alive_ = false;
      return say(member::Testified{epoch_});
    default:
      return;
  }
}

void LegalAgent::act(unsigned what, unsigned which) {
  switch (what % 8) {
    case 0:
      return tick(true);
    case 1:
      return tick(false);
    case 2:
    case 3:
      return connect(which);
    case 4:
    case 5:
      return hear(which);
    case 6:
      return work(which);
    default:
      driver_.pass(milliseconds{which % 500});
      return;
  }
}

RC_GTEST_PROP(MemberProperty, KeepsItsInvariantsUnderAnyEvents, ()) {
  const auto choices = *rc::gen::container<std::vector<std::pair<unsigned, unsigned>>>(
      rc::gen::pair(rc::gen::arbitrary<unsigned>(), rc::gen::arbitrary<unsigned>()));
  LegalAgent agent;
  agent.say(member::Begin{});
  for (const auto& [what, which] : choices)
    agent.act(what, which);
}

}  // namespace
}  // namespace muster
