// The processes of the simulated machine, with the part of the shell that starts, signals and reaps
// them. It knows the truth of which the machine under test only hears.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/process/exit_status.h"
#include "rendezvous/base/prng.h"
#include "rendezvous/base/time.h"
#include "tests/sim/worker_group_sim.h"

namespace muster::sim {

// Future events in order of time; events at the same time in the order of scheduling.
class Agenda {
 public:
  using Id = std::pair<Instant, uint64_t>;

  Id at(Instant when, std::function<void()> action) {
    return actions_.emplace(Id{when, next_++}, std::move(action)).first->first;
  }
  void cancel(const Id& id) { actions_.erase(id); }
  Instant next() const { return actions_.empty() ? kNever : actions_.begin()->first.first; }
  // REQUIRES: next() != kNever.
  std::function<void()> take() {
    auto action = std::move(actions_.begin()->second);
    actions_.erase(actions_.begin());
    return action;
  }

 private:
  std::map<Id, std::function<void()>> actions_;
  uint64_t next_ = 0;
};

struct Process {
  int pid = 0;
  int attempt = 0;
  int local_rank = 0;
  bool is_worker = false;
  bool alive = true;
  bool ignores_term = false;
  bool signaled_by_us = false;  // It dies from a signal of the machine.
  bool natural = false;         // It ends by itself, with `ending`.
  ExitStatus ending;
  Duration remaining{};  // Time until then, while suspended.
  Instant ends_at = kNever;
  std::optional<Agenda::Id> end;  // Its scheduled death, natural or not.
  bool suspended = false;
  bool dying = false;   // A signal has determined its end.
  bool doomed = false;  // SIGKILL was sent.
};

class ProcessWorld {
 public:
  // Called when a process has died (for a worker: has been reaped).
  using OnDeath = std::function<void(const Process&)>;

  ProcessWorld(const Plan& plan, Prng& prng, Agenda& agenda, OnDeath on_death)
      : plan_(plan), prng_(prng), agenda_(agenda), on_death_(std::move(on_death)) {}

  int start_worker(Instant now, int attempt, int local_rank);
  void send(Instant now, int attempt, int signal);  // To all processes, then SIGCONT.
  void kill(Instant now, int attempt);  // SIGKILL and SIGCONT to all, late starters too.
  void forward(Instant now, int attempt, int signal);
  void suspend(Instant now, int attempt);
  void resume(Instant now, int attempt);

  int alive(int attempt) const;
  int alive_in_all() const;
  int workers_alive(int attempt) const;
  Instant last_death() const { return last_death_; }
  const Process* worker(int attempt, int local_rank) const;

 private:
  Process& add(int attempt, int local_rank, bool is_worker);
  void plan_natural_end(Instant now, Process& process, Duration life, ExitStatus ending);
  void wake(Instant now, Process& process);
  void end_in(Instant now, Process& process, Duration delay, ExitStatus ending);
  void die(Instant now, int pid);
  void leave_descendants(Instant now, const Process& parent);
  void kill_one(Instant now, Process& process);

  const Plan& plan_;
  Prng& prng_;
  Agenda& agenda_;
  OnDeath on_death_;
  std::map<int, Process> processes_;  // By pid, including dead ones.
  std::set<int> killed_attempts_;
  int next_pid_ = 1000;
  Instant last_death_{};
};

}  // namespace muster::sim
