// Drives a worker-group machine in tests, with its own clock in milliseconds, and renders the
// effects of every step as transcript text.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "agent/job/worker_group.h"
#include "tests/transcripts/worker_group_transcript.h"

namespace muster {

class GroupDriver {
 public:
  explicit GroupDriver(const WorkerGroup::Options& options) : machine_(options) {}

  std::vector<WorkerGroup::Effect> step(const WorkerGroup::Event& event) {
    std::vector<WorkerGroup::Effect> effects;
    machine_.step(now(), event, effects);
    return effects;
  }

  // The effects of a step as text, joined by " | ".
  std::string hear(const WorkerGroup::Event& event) { return joined(step(event)); }

  template <typename... Events>
  void hear_all(const Events&... events) {
    (step(events), ...);
  }

  // Advances the clock without a Tick.
  void pass(Duration duration) {
    now_ms_ += std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  }

  // Advances the clock to the deadline and ticks. REQUIRES: there is a deadline.
  std::string tick_at_deadline() {
    pass(until_deadline());
    return hear(group::Tick{});
  }

  Duration until_deadline() const { return machine_.next_deadline() - now(); }
  bool waits_for_ever() const { return machine_.next_deadline() == kNever; }
  std::string status() const { return machine_.status(now()); }
  Instant now() const { return Instant{std::chrono::milliseconds{now_ms_}}; }
  WorkerGroup& machine() { return machine_; }

  // Starts an attempt, from its round until all workers run.
  void start(int attempt, int workers) {
    step(group::RoundReady{attempt});
    for (int rank = 0; rank < workers; ++rank) {
      step(group::Spawned{attempt, rank, 100 * (attempt + 1) + rank});
    }
  }

  static std::string joined(const std::vector<WorkerGroup::Effect>& effects) {
    std::vector<std::string> texts;
    for (const auto& effect : effects)
      texts.push_back(group::to_text(effect));
    return fmt::format("{}", fmt::join(texts, " | "));
  }

 private:
  WorkerGroup machine_;
  int64_t now_ms_ = 0;
};

inline const ExitStatus kGood = ExitStatus::exited(0);
inline const ExitStatus kCode3 = ExitStatus::exited(3);
inline const ExitStatus kTerm = ExitStatus::signaled(SIGTERM);
inline const ExitStatus kKilled = ExitStatus::signaled(SIGKILL);

inline WorkerGroup::Options options_for(int workers, int max_restarts) {
  WorkerGroup::Options options;
  options.workers = workers;
  options.max_restarts = max_restarts;
  return options;
}

// All workers of attempt 0 run.
inline GroupDriver started_group(const WorkerGroup::Options& options) {
  GroupDriver group(options);
  group.hear(group::Begin{});
  group.start(0, options.workers);
  return group;
}

// They have run for two seconds, so that no death is quick.
inline GroupDriver running_group(const WorkerGroup::Options& options) {
  GroupDriver group = started_group(options);
  group.pass(std::chrono::seconds{2});
  return group;
}
inline GroupDriver running_group(int workers, int max_restarts) {
  return running_group(options_for(workers, max_restarts));
}

// The outcome of a Finish that ends the effects.
inline const group::JobOutcome& outcome_in(const std::vector<WorkerGroup::Effect>& effects) {
  static const group::JobOutcome none;
  const auto* finish = effects.empty() ? nullptr : std::get_if<group::Finish>(&effects.back());
  EXPECT_NE(finish, nullptr) << GroupDriver::joined(effects);
  return finish == nullptr ? none : finish->outcome;
}

}  // namespace muster
