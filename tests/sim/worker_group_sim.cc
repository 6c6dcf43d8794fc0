#include "tests/sim/worker_group_sim.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/process_world.h"
#include "tests/sim/promises.h"
#include "tests/transcripts/seconds.h"
#include "tests/transcripts/worker_group_transcript.h"

namespace muster::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Longer than any life, latency or backlog that a plan can have.
constexpr Duration kPatience = seconds{120};

class Simulation {
 public:
  explicit Simulation(const Plan& plan)
      : plan_(plan),
        prng_(plan.seed ^ 0x5eedu),
        machine_(plan.group),
        world_(plan_, prng_, agenda_, [this](const Process& process) { died(process); }),
        promises_(plan_, world_) {}

  Report run();

 private:
  using Channel = std::pair<int, int>;  // (attempt, local rank); (-1, -1) is the shell's own queue.
  static constexpr Channel kShell{-1, -1};

  void plan_faults();
  void fault();
  void freeze(Duration length);
  void cease();
  void deliver(Channel channel, const group::Event& event);
  void hear(Channel channel);
  void step(const group::Event& event);
  void step_early_tick();
  void died(const Process& process);
  void say_if_empty(int attempt);

  void perform(const group::RequestRound& effect);
  void perform(const group::Spawn& effect);
  void perform(const group::Stop& effect);
  void perform(const group::StopRest& effect) { world_.send(now_, effect.attempt, SIGTERM); }
  void perform(const group::Kill& effect);
  void perform(const group::WatchLeftovers& effect);
  void perform(const group::SuspendWorkers& effect) { world_.suspend(now_, effect.attempt); }
  void perform(const group::ResumeWorkers& effect) { world_.resume(now_, effect.attempt); }
  void perform(const group::ForwardSignal& effect) {
    world_.forward(now_, effect.attempt, effect.signal);
  }
  void perform(const group::Finish& effect) { report_.outcome = effect.outcome; }
  void perform(const group::WorkerFailed&) {}
  void perform(const group::ReportStopping&) {}
  void perform(const group::ReportLeftovers&) {}
  void perform(const group::BackOff&) {}
  void perform(const group::Note&) {}
  void perform(const group::Succeeded&) {}

  bool percent(int chance) { return prng_.chance(static_cast<uint64_t>(chance), 100); }
  Duration latency() {
    return prng_.chance(1, 10) ? random_ms(prng_, 0, 400) : random_ms(prng_, 0, 2);
  }
  void trace(std::string line) {
    const double elapsed = std::chrono::duration<double>(now_.time_since_epoch()).count();
    report_.trace.push_back(fmt::format("{:10.3f} {}", elapsed, line));
  }
  void broken(std::string promise) {
    if (!report_.violation) report_.violation = std::move(promise);
  }

  const Plan plan_;
  Prng prng_;
  Agenda agenda_;
  WorkerGroup machine_;
  ProcessWorld world_;
  Promises promises_;
  Report report_;

  Instant now_{};
  Instant frozen_until_{};    // The agent is frozen until then.
  Instant tick_lag_until_{};  // The timer of next_deadline() fires a little late.
  Instant last_deadline_ = kNever;
  Instant must_end_by_ = kNever;
  std::map<Channel, std::deque<group::Event>> queues_;
  std::map<Channel, Instant> last_delivery_;
  std::set<Channel> started_;  // Channels whose Spawned was delivered.
  int echoes_ = 0;
  int watched_attempt_ = -1;  // Attempt whose GroupEmpty is to be sent; -1: none.
  bool spawning_ = false;
  bool suspended_ = false;
};

Report Simulation::run() {
  plan_faults();
  deliver(kShell, group::Begin{});
  while (!report_.outcome && !report_.violation) {
    const Instant deadline = machine_.next_deadline();
    if (deadline != last_deadline_) {
      last_deadline_ = deadline;
      tick_lag_until_ = deadline == kNever ? kNever : deadline + latency();
    }
    const Instant tick_at = deadline == kNever ? kNever : std::max(tick_lag_until_, frozen_until_);
    const Instant next = std::min(tick_at, agenda_.next());
    if (next == kNever) {
      broken("there is always something to wait for: " + machine_.status(now_));
    } else if (next > must_end_by_) {
      broken("the job ends within its bound: " + machine_.status(now_));
    } else if (tick_at <= agenda_.next()) {
      now_ = std::max(now_, tick_at);
      step(group::Tick{});
    } else {
      now_ = std::max(now_, agenda_.next());
      agenda_.take()();
    }
  }
  // Events after the end must have no effect.
  if (report_.outcome) {
    step(group::Tick{});
    step(group::StopRequested{SIGTERM});
  }
  return std::move(report_);
}

void Simulation::plan_faults() {
  const auto horizon_ms = static_cast<uint64_t>(plan_.horizon / milliseconds{1});
  for (int i = 0; i < plan_.faults; ++i) {
    agenda_.at(Instant{} + random_ms(prng_, 0, horizon_ms), [this] { fault(); });
  }
  agenda_.at(Instant{} + plan_.horizon + milliseconds{1}, [this] { cease(); });
}

void Simulation::fault() {
  const int attempt = std::max(0, report_.attempts - 1);
  const int rank = static_cast<int>(prng_.below(static_cast<uint64_t>(plan_.group.workers)));
  constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  switch (prng_.below(21)) {
    case 0:
      return deliver(kShell, group::StopRequested{kStopSignals[prng_.below(4)]});
    case 1:
      return deliver(kShell, group::KillRequested{});
    case 2:
    case 3:
    case 4:
      if (report_.attempts > 0) deliver(kShell, group::Regroup{attempt});
      return;
    case 5:
      if (report_.attempts > 0) deliver(kShell, group::FailWorker{attempt, rank, "it hangs"});
      return;
    case 6:
    case 7:
      return deliver(kShell, group::Forward{prng_.chance(1, 2) ? SIGUSR1 : SIGUSR2});
    case 8:
    case 9:
      return freeze(random_ms(prng_, 10, 60000));
    case 10:
    case 11:
      return step_early_tick();
    case 12:
      return deliver(kShell, group::StopRepeated{});
    default:
      suspended_ = !suspended_;
      if (suspended_) return deliver(kShell, group::Suspend{});
      return deliver(kShell, group::Resume{});
  }
}

void Simulation::freeze(Duration length) {
  trace(fmt::format("the agent stands still for {}", seconds_text(length)));
  frozen_until_ = std::max(frozen_until_, now_ + length);
  promises_.froze(length);
}

// Ends the faults. From now on the job must end: at once after a stop request, otherwise after the
// natural ends of as many attempts as the budget allows.
void Simulation::cease() {
  trace("faults cease");
  if (suspended_) deliver(kShell, group::Resume{});
  const Duration one_stop = plan_.group.stop_may_follow + plan_.group.grace +
                            plan_.group.kill_wait + 2 * plan_.group.second_look;
  const Instant start = std::max(now_, frozen_until_) + seconds{5};
  if (plan_.stop_at_horizon) {
    deliver(kShell, group::StopRequested{SIGTERM});
    must_end_by_ = start + one_stop;
  } else {
    must_end_by_ =
        start + (plan_.group.max_restarts + 2) * (kPatience + plan_.group.grace + one_stop);
  }
}

// Events of one channel keep their order; those of different channels may overtake one another.
// Duplicates may come late, but the user's keys are not duplicated, since their order matters.
void Simulation::deliver(Channel channel, const group::Event& event) {
  Instant& last = last_delivery_[channel];
  last = std::max({last, now_ + latency(), frozen_until_});
  queues_[channel].push_back(event);
  agenda_.at(last, [this, channel] { hear(channel); });
  const bool is_fact = std::visit([](const auto& e) { return requires { e.attempt; }; }, event);
  if (!is_fact || !percent(plan_.doubled_percent)) return;
  const Channel echo{-2, echoes_++};
  queues_[echo].push_back(event);
  agenda_.at(last + latency(), [this, echo] { hear(echo); });
}

// A frozen process reads its queues afterwards.
void Simulation::hear(Channel channel) {
  if (now_ < frozen_until_) {
    agenda_.at(frozen_until_, [this, channel] { hear(channel); });
    return;
  }
  const group::Event event = queues_.at(channel).front();
  if (const auto* exited = std::get_if<group::Exited>(&event)) {
    // The shell guarantees one order across channels: Spawned comes before Exited.
    if (!started_.contains({exited->attempt, exited->local_rank})) {
      agenda_.at(now_ + milliseconds{1}, [this, channel] { hear(channel); });
      return;
    }
  }
  queues_.at(channel).pop_front();
  if (const auto* spawned = std::get_if<group::Spawned>(&event)) {
    started_.emplace(spawned->attempt, spawned->local_rank);
  }
  step(event);
}

void Simulation::step(const group::Event& event) {
  trace("-> " + group::to_text(event));
  ++report_.steps;
  std::vector<group::Effect> effects;
  promises_.heard(now_, event);
  machine_.step(now_, event, effects);
  for (const group::Effect& effect : effects) {
    trace("   " + group::to_text(effect));
    promises_.asked(now_, effect);
    std::visit([this](const auto& e) { perform(e); }, effect);
  }
  if (promises_.broken()) broken(*promises_.broken());
  const std::string status = machine_.status(now_);
  if (status.empty() || status.find('\n') != std::string::npos) broken("the status is one line");
}

// Checks that a Tick before next_deadline() does nothing.
void Simulation::step_early_tick() {
  const Instant deadline = machine_.next_deadline();
  if (deadline <= now_) return;
  std::vector<group::Effect> effects;
  const std::string before = machine_.status(now_);
  machine_.step(now_, group::Tick{}, effects);
  if (!effects.empty() || machine_.next_deadline() != deadline || machine_.status(now_) != before) {
    broken("a Tick before the deadline does nothing");
  }
}

void Simulation::died(const Process& process) {
  now_ = std::max(now_, process.ends_at);
  trace(fmt::format("   pid {} of attempt {} rank {}{} {}", process.pid, process.attempt,
                    process.local_rank, process.is_worker ? "" : " (descendant)",
                    muster::describe(process.ending)));
  if (process.is_worker) {
    deliver({process.attempt, process.local_rank},
            group::Exited{process.attempt, process.local_rank, process.ending});
  }
  say_if_empty(process.attempt);
}

void Simulation::say_if_empty(int attempt) {
  if (attempt != watched_attempt_ || spawning_ || world_.alive(attempt) > 0) return;
  watched_attempt_ = -1;
  deliver(kShell, group::GroupEmpty{attempt});
}

void Simulation::perform(const group::RequestRound& effect) {
  ++report_.attempts;
  const int attempt = effect.attempt;
  const Duration delay = prng_.chance(1, 10) ? random_ms(prng_, 0, 3000) : random_ms(prng_, 0, 5);
  const bool fails = percent(plan_.round_fails_percent);
  agenda_.at(now_ + delay, [this, attempt, fails] {
    if (fails) {
      deliver(kShell, group::RoundFailed{attempt, {ExitCode::environment, "no free port"}});
    } else {
      deliver(kShell, group::RoundReady{attempt});
    }
  });
}

void Simulation::perform(const group::Spawn& effect) {
  spawning_ = true;
  const bool fails = percent(plan_.spawn_fails_percent);
  const Duration delay = prng_.chance(1, 10) ? random_ms(prng_, 0, 400) : random_ms(prng_, 0, 1);
  agenda_.at(now_ + delay, [this, effect, fails] {
    spawning_ = false;
    const int attempt = effect.attempt;
    const int rank = effect.local_rank;
    if (fails) {
      deliver(kShell, group::SpawnFailed{attempt, rank, {ExitCode::not_found, "no such program"}});
      return say_if_empty(attempt);
    }
    const int pid = world_.start_worker(now_, attempt, rank);
    deliver(kShell, group::Spawned{attempt, rank, pid});
  });
}

void Simulation::perform(const group::Stop& effect) {
  world_.send(now_, effect.attempt, effect.signal);
  watched_attempt_ = effect.attempt;
  say_if_empty(effect.attempt);
}

void Simulation::perform(const group::Kill& effect) {
  world_.kill(now_, effect.attempt);
  watched_attempt_ = effect.attempt;
  say_if_empty(effect.attempt);
}

void Simulation::perform(const group::WatchLeftovers& effect) {
  watched_attempt_ = effect.attempt;
  say_if_empty(effect.attempt);
}

}  // namespace

Plan plan_for(uint64_t seed) {
  Prng prng(seed);
  const auto one_of = [&prng](auto... values) {
    const std::array choices{values...};
    return choices[prng.below(choices.size())];
  };
  Plan plan;
  plan.seed = seed;
  plan.group.workers = 1 + static_cast<int>(prng.below(4));
  plan.group.max_restarts = static_cast<int>(prng.below(4));
  plan.group.grace = milliseconds{one_of(0, 500, 3000, 30000)};
  plan.group.kill_wait = milliseconds{one_of(5000, 30000)};
  plan.group.stop_may_follow = milliseconds{one_of(0, 1000)};
  plan.horizon = random_ms(prng, 50, prng.chance(1, 2) ? 2000 : 60000);
  plan.some_hang = prng.chance(1, 4);
  plan.stop_at_horizon = plan.some_hang || prng.chance(1, 3);
  plan.leftovers_percent = one_of(0, 0, 20, 60);
  plan.ignore_term_percent = one_of(0, 0, 20, 60);
  plan.failing_percent = one_of(0, 10, 30, 70);
  plan.spawn_fails_percent = one_of(0, 0, 0, 3);
  plan.round_fails_percent = one_of(0, 0, 0, 3);
  plan.doubled_percent = one_of(0, 10);
  plan.kernel_sleep = prng.chance(1, 5);
  plan.faults = static_cast<int>(one_of(0, 2, 6, 12));
  return plan;
}

std::string to_text(const Plan& plan) {
  return fmt::format(
      "seed {}: {} workers, {} restarts, grace {}, kill wait {}; {} faults until {}, "
      "then {}; {}% leave descendants, {}% ignore TERM, {}% fail, {}% of starts and {}% of rounds "
      "fail, {}% of events are doubled{}{}",
      plan.seed, plan.group.workers, plan.group.max_restarts, seconds_text(plan.group.grace),
      seconds_text(plan.group.kill_wait), plan.faults, seconds_text(plan.horizon),
      plan.stop_at_horizon ? "a stop" : "patience", plan.leftovers_percent,
      plan.ignore_term_percent, plan.failing_percent, plan.spawn_fails_percent,
      plan.round_fails_percent, plan.doubled_percent, plan.some_hang ? ", some hang" : "",
      plan.kernel_sleep ? ", some sleep in the kernel" : "");
}

Report simulate(const Plan& plan) {
  return Simulation(plan).run();
}

}  // namespace muster::sim
