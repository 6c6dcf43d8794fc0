#include "tests/sim/process_world.h"

#include <csignal>

namespace muster::sim {

Process& ProcessWorld::add(int attempt, int local_rank, bool is_worker) {
  Process process;
  process.pid = next_pid_++;
  process.attempt = attempt;
  process.local_rank = local_rank;
  process.is_worker = is_worker;
  process.ignores_term = prng_.chance(static_cast<uint64_t>(plan_.ignore_term_percent), 100);
  return processes_.emplace(process.pid, process).first->second;
}

int ProcessWorld::start_worker(Instant now, int attempt, int local_rank) {
  Process& process = add(attempt, local_rank, true);
  // Short, medium and long lives, so that both quick and slow deaths are common.
  const Duration life = prng_.chance(1, 3)   ? random_ms(prng_, 0, 50)
                        : prng_.chance(1, 2) ? random_ms(prng_, 500, 3000)
                                             : random_ms(prng_, 3000, 30000);
  ExitStatus ending = ExitStatus::exited(0);
  if (prng_.chance(static_cast<uint64_t>(plan_.failing_percent), 100)) {
    ending = prng_.chance(1, 2) ? ExitStatus::exited(1 + static_cast<int>(prng_.below(255)))
                                : ExitStatus::signaled(prng_.chance(1, 2) ? SIGSEGV : SIGTERM);
  }
  if (!plan_.some_hang || prng_.chance(2, 3)) plan_natural_end(now, process, life, ending);
  if (killed_attempts_.contains(attempt)) kill_one(now, process);
  return process.pid;
}

void ProcessWorld::plan_natural_end(Instant now, Process& process, Duration life,
                                    ExitStatus ending) {
  process.natural = true;
  end_in(now, process, life, ending);
}

void ProcessWorld::end_in(Instant now, Process& process, Duration delay, ExitStatus ending) {
  if (process.end) agenda_.cancel(*process.end);
  process.ending = ending;
  process.ends_at = now + delay;
  const int pid = process.pid;
  process.end =
      agenda_.at(process.ends_at, [this, pid, when = process.ends_at] { die(when, pid); });
}

void ProcessWorld::die(Instant now, int pid) {
  Process& process = processes_.at(pid);
  process.alive = false;
  process.end.reset();
  last_death_ = now;
  if (process.is_worker) leave_descendants(now, process);
  on_death_(process);
}

void ProcessWorld::leave_descendants(Instant now, const Process& parent) {
  if (!prng_.chance(static_cast<uint64_t>(plan_.leftovers_percent), 100)) return;
  const int attempt = parent.attempt;
  const int local_rank = parent.local_rank;
  for (uint64_t left = 1 + prng_.below(2); left > 0; --left) {
    Process& child = add(attempt, local_rank, false);
    if (prng_.chance(2, 3)) {
      plan_natural_end(now, child, random_ms(prng_, 0, 5000), ExitStatus::exited(0));
    }
    if (killed_attempts_.contains(attempt)) kill_one(now, child);
  }
}

void ProcessWorld::wake(Instant now, Process& process) {
  if (!process.suspended) return;
  process.suspended = false;
  if (process.natural && !process.dying) end_in(now, process, process.remaining, process.ending);
}

void ProcessWorld::send(Instant now, int attempt, int signal) {
  for (auto& [pid, process] : processes_) {
    if (!process.alive || process.attempt != attempt) continue;
    wake(now, process);
    if (process.ignores_term || process.dying) continue;
    process.dying = true;
    process.signaled_by_us = true;
    // Most die at once; some clean up for a while and exit with a code of their own.
    if (prng_.chance(2, 3)) {
      end_in(now, process, random_ms(prng_, 0, 5), ExitStatus::signaled(signal));
    } else {
      const int code = prng_.chance(1, 2) ? 0 : prng_.chance(1, 2) ? 1 : 128 + signal;
      end_in(now, process, random_ms(prng_, 10, 4000), ExitStatus::exited(code));
    }
  }
}

void ProcessWorld::kill_one(Instant now, Process& process) {
  if (process.doomed) return;
  wake(now, process);
  process.dying = process.doomed = process.signaled_by_us = true;
  const bool sleeps = plan_.kernel_sleep && prng_.chance(1, 3);
  end_in(now, process, sleeps ? random_ms(prng_, 1000, 60000) : random_ms(prng_, 0, 5),
         ExitStatus::signaled(SIGKILL));
}

void ProcessWorld::kill(Instant now, int attempt) {
  killed_attempts_.insert(attempt);
  for (auto& [pid, process] : processes_) {
    if (process.alive && process.attempt == attempt) kill_one(now, process);
  }
}

void ProcessWorld::forward(Instant now, int attempt, int signal) {
  for (auto& [pid, process] : processes_) {
    if (!process.alive || process.attempt != attempt || !process.is_worker) continue;
    // Without a handler the worker dies of the user's signal, which may count as a failure.
    if (process.dying || process.suspended || prng_.chance(9, 10)) continue;
    process.dying = true;
    end_in(now, process, Duration::zero(), ExitStatus::signaled(signal));
  }
}

void ProcessWorld::suspend(Instant now, int attempt) {
  for (auto& [pid, process] : processes_) {
    if (!process.alive || process.attempt != attempt || process.suspended || process.dying) {
      continue;
    }
    process.suspended = true;
    if (!process.end) continue;
    process.remaining = process.ends_at - now;
    agenda_.cancel(*process.end);
    process.end.reset();
  }
}

void ProcessWorld::resume(Instant now, int attempt) {
  for (auto& [pid, process] : processes_) {
    if (process.alive && process.attempt == attempt) wake(now, process);
  }
}

int ProcessWorld::alive(int attempt) const {
  int count = 0;
  for (const auto& [pid, process] : processes_) {
    count += process.alive && process.attempt == attempt;
  }
  return count;
}

int ProcessWorld::alive_in_all() const {
  int count = 0;
  for (const auto& [pid, process] : processes_)
    count += process.alive;
  return count;
}

int ProcessWorld::workers_alive(int attempt) const {
  int count = 0;
  for (const auto& [pid, process] : processes_) {
    count += process.alive && process.attempt == attempt && process.is_worker;
  }
  return count;
}

const Process* ProcessWorld::worker(int attempt, int local_rank) const {
  for (const auto& [pid, process] : processes_) {
    if (process.is_worker && process.attempt == attempt && process.local_rank == local_rank) {
      return &process;
    }
  }
  return nullptr;
}

}  // namespace muster::sim
