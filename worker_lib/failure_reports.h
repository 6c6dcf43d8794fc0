// The last failure that this process has reported to its program and not overcome since. Kept for
// ranks that ask about this one (straggler_report.h), and written into the launcher's ring
// (env::kRecordFd), if there is one, for its verdict (rendezvous/ring/failure_record.h).
//
// The newest failure counts, with three exceptions. A failure that is reported again (a group's
// refusal of every later call, each wait() for the same Work) is not new. A loss (of a peer, of the
// store or of the job) within kEchoes after another failure is taken for its consequence and not
// recorded. And once the thread that got the report completes a call, it has overcome the failure:
// then none is kept, unless an exception is still being handled.
//
// Only the process that joined the job writes: a forked child does not overwrite its parent's
// report, and a process that has joined nothing does not overwrite an existing one. Nothing here
// throws. Any thread; not for signal handlers.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <sys/types.h>

#include "rendezvous/ring/failure_record.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class FailureReports {
 public:
  static constexpr std::chrono::nanoseconds kEchoes = std::chrono::seconds{5};

  // `record_fd` names the ring; empty: none. `rank`: this process's, if known.
  FailureReports(std::string record_fd, int rank);
  FailureReports(FailureReports&&) = delete;

  // Notes that this process joins a job as this rank.
  void joins(int rank) noexcept;
  // Notes that this process makes a group by muster_group_join(), as `rank` there. Has no effect on
  // the rank once a job is joined, or if RANK was set.
  void joins_group(int rank) noexcept;
  // Call before reporting a failure to the program, or before ending the process because of it.
  void add(const Failure& failure) noexcept;
  // Call when the calling thread has completed a call. One load if nothing was reported to it.
  void overcome() noexcept {
    if (told_this_thread_) [[unlikely]]
      withdraw();
  }

  std::optional<FailureRecord> last() const;

 private:
  void withdraw() noexcept;
  ring::Report* report();  // nullptr: no ring, or this process must not write it.
  bool is_echo(const Failure& failure, int64_t now) const;

  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool told_this_thread_ =
      false;

  const std::string record_fd_;
  mutable std::mutex mutex_;  // Guards what follows.
  pid_t joined_ = 0;          // The process that joined; 0: none.
  int rank_;
  std::optional<FailureRecord> last_;
  int64_t told_ns_ = 0;         // Time when last_ was first reported,
  std::thread::id told_to_;     // and to which thread.
  ring::Ring* ring_ = nullptr;  // Never unmapped; nullptr: none, or not asked for yet.
  pid_t written_by_ = 0;
};

// Returns the process's instance. Its ring and rank come from the environment at load time.
FailureReports& failure_reports();

// Reads CLOCK_MONOTONIC, never the same value twice, so that it identifies a failure.
int64_t new_failure_time();

}  // namespace muster::worker
