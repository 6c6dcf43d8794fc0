// Ranks that raised an exception that nothing caught, and have not ended: a thread that is no
// daemon keeps the interpreter, a barrier of JAX's shutdown waits for ranks that wait for this one.
// Other ranks may wait in no recorded call, so the hang detector need not see it.
//
// Such a rank is said after 10 s, and unless `--on-hang report` counts as failed once the grace of
// a stop (--shutdown-timeout) has passed since, if it has neither computed nor moved data for 10 s,
// and its threads have hardly woken: one that uploads or saves is left alone. Control loop only.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agent/hang/life.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/own_ranks.h"
#include "agent/launch_spec.h"
#include "rendezvous/base/time.h"

namespace muster {

class LingeringRanks {
 public:
  LingeringRanks(JobSeam& job, const LaunchSpec& spec, JobRecorder& record,
                 const OwnRanks& own_ranks)
      : job_(job), spec_(spec), record_(record), own_ranks_(own_ranks) {}

  void begin_attempt() { ranks_.clear(); }
  // Called some times a second while the workers run.
  void look();

 private:
  struct Rank {
    std::optional<hang::LifeLook> look;
    hang::Life life;
    Instant next_look{};
    Instant since{};    // When its exception was first seen to be uncaught.
    Instant busy_at{};  // When it last computed, moved data or woke often, as far as is known.
    std::optional<uint64_t> wakeups;  // Those of all threads, at the last sample.
    bool is_said = false;
    bool has_failed = false;
  };

  void look_at(int local_rank, const Departure& departure);
  void sample(Rank& rank, int local_rank, Instant now);
  Duration patience() const;  // Time from its exception until it counts as failed.
  bool acts() const { return spec_.hang.on_hang != OnHang::report; }
  std::string text(int local_rank, const Departure& departure, const Rank& rank,
                   Duration since) const;

  JobSeam& job_;
  const LaunchSpec& spec_;
  JobRecorder& record_;
  const OwnRanks& own_ranks_;
  std::map<int, Rank> ranks_;  // By local rank.
};

}  // namespace muster
