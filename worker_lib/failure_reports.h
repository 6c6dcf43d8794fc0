// The last failure that this process has reported to its program and that was not overcome since:
// kept for ranks that ask what became of this one (straggler_report.h), and written into the
// launcher's ring for its verdict (rendezvous/ring/failure_record.h) if there is one
// (env::kRecordFd).
//
// The newest counts, with three exceptions. A failure that is reported again (a group's refusal of
// every later call, each wait() for the same Work) is not a new one. Nor is the loss of a peer, of
// the store or of the job itself within kEchoes of another failure: that is how other ranks meet
// the same failure. And once the thread that got the report has completed a call successfully, it
// has overcome the failure: then there is none, unless an exception is still being handled.
//
// Only the process that joined the job writes: a forked child does not overwrite its parent's
// report, and a process that has joined nothing leaves one alone that is there. Nothing here
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

  // `record_fd`: names the ring; empty: there is none. `rank`: this process's, if known.
  FailureReports(std::string record_fd, int rank);
  FailureReports(const FailureReports&) = delete;
  FailureReports& operator=(const FailureReports&) = delete;

  // This process joins a job, as this rank.
  void joins(int rank) noexcept;
  // It joins a group of its own, where it is known as `rank`: what it is in a job counts more.
  void joins_group(int rank) noexcept;
  // The failure is about to be reported to the program, or the library ends the process because of
  // it.
  void add(const Failure& failure) noexcept;
  // The calling thread has completed a call successfully. One load if nothing was reported to it.
  void overcome() noexcept {
    if (told_this_thread_) [[unlikely]]
      withdraw();
  }

  std::optional<FailureRecord> last() const;

 private:
  void withdraw() noexcept;
  ring::Report* report();  // nullptr: there is none, or this process must not write it.
  bool is_echo(const Failure& failure, int64_t now) const;

  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool told_this_thread_ =
      false;

  const std::string record_fd_;
  mutable std::mutex mutex_;  // Guards what follows.
  pid_t joined_ = 0;          // The process that joined; 0: none.
  int rank_;
  std::optional<FailureRecord> last_;
  int64_t told_ns_ = 0;         // When last_ was first reported,
  std::thread::id told_to_;     // and to which thread.
  ring::Ring* ring_ = nullptr;  // Never unmapped; nullptr: none, or not asked for yet.
  pid_t written_by_ = 0;
};

// The process's own: its ring and rank are those of the environment when the library was loaded.
FailureReports& failure_reports();

// CLOCK_MONOTONIC; never the same twice, so that it identifies a failure.
int64_t new_failure_time();

}  // namespace muster::worker
