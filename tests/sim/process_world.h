// The processes of the simulated computer, and the part of the shell that starts, signals and reaps
// them. It knows the truth, of which the machine under test only receives reports.
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

inline Duration random_ms(Prng& prng, uint64_t low, uint64_t high) {
  return std::chrono::milliseconds{low + prng.below(high - low + 1)};
}

// Future events by time, and in order of scheduling at the same time.
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
  bool signaled_by_us = false;  // True if it dies of a signal of the machine.
  bool natural = false;         // True if it ends by itself, with `ending`.
  ExitStatus ending;
  Duration remaining{};  // Time until its natural end, while suspended.
  Instant ends_at = kNever;
  std::optional<Agenda::Id> end;  // Its scheduled death, natural or not.
  bool suspended = false;
  bool dying = false;   // True once a signal has determined its end.
  bool doomed = false;  // True once SIGKILL was sent.
};

class ProcessWorld {
 public:
  // Called when a process has died (a worker: was reaped).
  using OnDeath = std::function<void(const Process&)>;

  ProcessWorld(const Plan& plan, Prng& prng, Agenda& agenda, OnDeath on_death)
      : plan_(plan), prng_(prng), agenda_(agenda), on_death_(std::move(on_death)) {}

  int start_worker(Instant now, int attempt, int local_rank);
  void send(Instant now, int attempt, int signal);  // Signals all processes, then sends SIGCONT.
  void kill(Instant now, int attempt);  // SIGKILL and SIGCONT to all, and to later starts.
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
