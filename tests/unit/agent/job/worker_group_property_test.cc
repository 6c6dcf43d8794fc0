// Properties of the worker-group machine under arbitrary sequences of legal events: rapidcheck
// draws them and shrinks failing ones. Unlike the simulator this models no world: an exit, a second
// GroupEmpty or a signal may come whenever the shell could send it.
#include <algorithm>
#include <csignal>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/transcripts/worker_group_transcript.h"
#include "tests/unit/agent/job/worker_group_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The shell's knowledge: the answers that it owes, and which workers live.
class LegalShell {
 public:
  LegalShell(GroupDriver& group, int workers) : group_(group), workers_(workers) {}

  // Sends the event, records its effects, and checks the invariants of every step.
  void say(const WorkerGroup::Event& event) {
    RC_ASSERT(!finished || group_.machine().finished());
    for (const WorkerGroup::Effect& effect : group_.step(event)) {
      RC_ASSERT(!finished);
      std::visit([this](const auto& e) { on(e); }, effect);
    }
  }

  // REQUIRES: there is a deadline.
  void tick_at_deadline() {
    RC_ASSERT(!group_.waits_for_ever());
    group_.pass(std::max(Duration::zero(), group_.until_deadline()));
    say(group::Tick{});
  }

  // Lets one of the possible next events happen, picked by two drawn numbers.
  void act(unsigned what, unsigned which);

  bool finished = false;
  int finishes = 0;
  std::optional<group::JobOutcome> outcome;
  int rounds_paid = 0;

 private:
  template <typename T>
  void on(const T&) {}
  void on(const group::RequestRound& e) {
    RC_ASSERT(live_.empty());
    RC_ASSERT(!spawning_);
    RC_ASSERT(attempt == -1 || empty_ || started_.empty());
    RC_ASSERT(!end_requested);
    RC_ASSERT(e.attempt == attempt + 1);
    RC_ASSERT(e.restart_count >= rounds_paid && e.restart_count <= rounds_paid + 1);
    rounds_paid = e.restart_count;
    attempt = e.attempt;
    round_owed_ = true;
    stop_sent_ = watched_ = empty_ = false;
    first_.reset();
    started_.clear();
  }
  void on(const group::Spawn& e) {
    RC_ASSERT(!spawning_ && !round_owed_ && !stop_sent_);
    RC_ASSERT(e.attempt == attempt);
    RC_ASSERT(started_.insert(e.local_rank).second);
    spawning_ = e.local_rank;
  }
  void on(const group::WorkerFailed& e) {
    RC_ASSERT(!first_ && !stop_sent_);
    first_ = e.first;
  }
  void on(const group::Stop&) { stop_sent_ = watched_ = true; }
  void on(const group::Kill&) { stop_sent_ = watched_ = true; }
  void on(const group::WatchLeftovers&) {
    RC_ASSERT(live_.empty() && static_cast<int>(started_.size()) == workers_);
    watched_ = true;
  }
  void on(const group::Finish& e) {
    finished = true;
    ++finishes;
    outcome = e.outcome;
    if (e.outcome.end != JobEnd::unkillable) {
      RC_ASSERT(live_.empty() && !spawning_);
    }
  }

  void answer_round(bool well) {
    round_owed_ = false;
    if (well) return say(group::RoundReady{attempt});
    say(group::RoundFailed{attempt, {ExitCode::environment, "no port"}});
  }
  void answer_spawn(bool well) {
    const int rank = *std::exchange(spawning_, std::nullopt);
    if (!well) {
      started_.erase(rank);
      spawn_failed = true;
      return say(group::SpawnFailed{attempt, rank, {ExitCode::not_found, "no program"}});
    }
    live_.insert(rank);
    empty_ = false;
    say(group::Spawned{attempt, rank, 1000 + rank});
  }
  void exit_of(unsigned which) {
    const auto worker = std::next(live_.begin(), which % static_cast<unsigned>(live_.size()));
    const int rank = *worker;
    live_.erase(worker);
    const ExitStatus endings[] = {ExitStatus::exited(0), ExitStatus::exited(0),
                                  ExitStatus::exited(7), ExitStatus::signaled(SIGTERM)};
    say(group::Exited{attempt, rank, endings[which / 7 % 4]});
  }
  void say_empty() {
    if (!watched_ || spawning_ || !live_.empty()) return;
    empty_ = true;
    say(group::GroupEmpty{attempt});
  }

 public:
  int attempt = -1;
  bool end_requested = false;
  bool spawn_failed = false;

 private:
  GroupDriver& group_;
  int workers_;
  bool round_owed_ = false;
  bool stop_sent_ = false;
  bool watched_ = false;
  bool empty_ = false;
  bool suspended_ = false;
  std::optional<int> spawning_;
  std::optional<group::FirstFailure> first_;
  std::set<int> started_;
  std::set<int> live_;
};

void LegalShell::act(unsigned what, unsigned which) {
  switch (what % 24) {
    case 0:
      if (attempt >= 0) say(group::Regroup{attempt});
      return;
    case 1:
      if (which % 5 != 0) return;
      end_requested = true;
      return say(group::StopRequested{which % 2 == 0 ? SIGTERM : SIGINT});
    case 2:
      if (which % 5 != 0) return;
      end_requested = true;
      return say(group::KillRequested{});
    case 8:
      if (which % 5 == 0) return say(group::StopRepeated{});
      [[fallthrough]];
    case 3:
      suspended_ = !suspended_;
      if (suspended_) return say(group::Suspend{});
      return say(group::Resume{});
    case 4:
      return say(group::Forward{SIGUSR1});
    case 5:
      if (attempt > 0) say(group::Exited{attempt - 1, 0, ExitStatus::exited(1)});
      return;
    case 6:
    case 7:
      group_.pass(milliseconds{which % 20000});
      return say(group::Tick{});
    default:
      if (round_owed_) return answer_round(which % 20 != 0);
      if (what % 2 == 0 && spawning_) return answer_spawn(which % 20 != 0);
      if (what % 3 != 0 && !live_.empty()) return exit_of(which);
      return say_empty();
  }
}

struct Run {
  WorkerGroup::Options options;
  std::vector<std::pair<unsigned, unsigned>> acts;
};

Run draw_run() {
  Run run;
  run.options.workers = *rc::gen::inRange(1, 5);
  run.options.max_restarts = *rc::gen::inRange(0, 4);
  run.options.grace = milliseconds{*rc::gen::inRange(0, 30000)};
  run.options.kill_wait = milliseconds{*rc::gen::inRange(0, 30000)};
  const int length = *rc::gen::inRange(0, 300);
  run.acts = *rc::gen::container<std::vector<std::pair<unsigned, unsigned>>>(
      static_cast<size_t>(length),
      rc::gen::pair(rc::gen::inRange(0u, 10000u), rc::gen::inRange(0u, 1000000u)));
  return run;
}

// Plays a run until its acts end or the machine finishes; calls `after` with the second number of
// each act.
void play(
    const Run& run, LegalShell& shell,
    const std::function<void(unsigned)>& after = [](unsigned) {}) {
  shell.say(group::Begin{});
  for (const auto& [what, which] : run.acts) {
    if (shell.finished) break;
    shell.act(what, which);
    after(which);
  }
}

RC_GTEST_PROP(WorkerGroupProperty, KeepsItsInvariantsUnderEveryLegalSequence, ()) {
  const Run run = draw_run();
  GroupDriver group(run.options);
  LegalShell shell(group, run.options.workers);
  play(run, shell);
  RC_ASSERT(shell.rounds_paid <= run.options.max_restarts);
  if (!shell.outcome) return;
  const group::JobOutcome& outcome = *shell.outcome;
  RC_TAG(group::to_text(outcome).substr(0, group::to_text(outcome).find(',')));
  RC_ASSERT((outcome.end == JobEnd::stopped) <= shell.end_requested);
  RC_ASSERT((outcome.end == JobEnd::spawn_failed) <= shell.spawn_failed);
  RC_ASSERT((outcome.end == JobEnd::failed) <= (shell.rounds_paid == run.options.max_restarts));
  RC_ASSERT(outcome.attempts == shell.attempt + 1);
}

RC_GTEST_PROP(WorkerGroupProperty, FinishesExactlyOnceAndThenIsSilent, ()) {
  const Run run = draw_run();
  GroupDriver group(run.options);
  LegalShell shell(group, run.options.workers);
  play(run, shell);
  if (!shell.finished) shell.say(group::KillRequested{});
  while (!shell.finished)
    shell.tick_at_deadline();
  RC_ASSERT(group.machine().finished());
  RC_ASSERT(group.waits_for_ever());
  for (const auto& [what, which] : run.acts)
    shell.act(what, which);
  RC_ASSERT(shell.finishes == 1);
}

// Even if no process ever ends, a stop request ends the job within the grace and the wait after
// KILL. (The clock of a stop already under way runs on.)
RC_GTEST_PROP(WorkerGroupProperty, AStopAlwaysEndsInTime, ()) {
  const Run run = draw_run();
  GroupDriver group(run.options);
  LegalShell shell(group, run.options.workers);
  play(run, shell);
  if (shell.finished) return;
  shell.say(group::StopRequested{SIGTERM});
  const Instant asked = group.now();
  // A stop already under way may owe a second look, after a late Tick.
  const Duration bound = run.options.grace + run.options.kill_wait + 2 * run.options.second_look;
  while (!group.machine().finished()) {
    shell.tick_at_deadline();
    RC_ASSERT(group.now() - asked <= bound + milliseconds{1});
  }
}

RC_GTEST_PROP(WorkerGroupProperty, ATickBeforeTheDeadlineDoesNothing, ()) {
  const Run run = draw_run();
  GroupDriver group(run.options);
  LegalShell shell(group, run.options.workers);
  play(run, shell, [&](unsigned) {
    if (group.until_deadline() <= Duration::zero()) return;
    const Instant before = group.machine().next_deadline();
    const std::string status = group.status();
    RC_ASSERT(group.hear(group::Tick{}) == "");
    RC_ASSERT(group.machine().next_deadline() == before);
    RC_ASSERT(group.status() == status);
  });
}

// Otherwise the shell's timer would fire again and again.
RC_GTEST_PROP(WorkerGroupProperty, ATickAtTheDeadlineDoesSomething, ()) {
  const Run run = draw_run();
  GroupDriver group(run.options);
  LegalShell shell(group, run.options.workers);
  play(run, shell, [&](unsigned which) {
    if (group.waits_for_ever() || which % 3 != 0) return;
    const Instant before = group.machine().next_deadline();
    group.pass(std::max(Duration::zero(), group.until_deadline() + milliseconds{1}));
    shell.say(group::Tick{});
    RC_ASSERT(group.machine().next_deadline() != before);
    RC_ASSERT(group.machine().next_deadline() >= group.now());
  });
}

RC_GTEST_PROP(WorkerGroupProperty, TheSameEventsGiveTheSameEffects, ()) {
  const Run run = draw_run();
  std::vector<std::string> statuses[2];
  for (auto& seen : statuses) {
    GroupDriver group(run.options);
    LegalShell shell(group, run.options.workers);
    play(run, shell, [&](unsigned) {
      seen.push_back(group.status());
      RC_ASSERT(!seen.back().empty());
      RC_ASSERT(seen.back().find('\n') == std::string::npos);
    });
  }
  RC_ASSERT(statuses[0] == statuses[1]);
}

}  // namespace
}  // namespace muster
