// What this process has told its program of a failure, and not seen overcome since: kept for those
// ranks that ask what became of this one (straggler_report.h), and left in a file for the
// launcher's verdict (rendezvous/base/failure_record.h) where it named one (env::kFailureFile).
//
// The newest counts, with three exceptions. A failure that is told again (a group's refusal of
// every later call, each wait() for the same Work) is not a new one. Nor is the loss of a peer, of
// the store or of the job itself within kEchoes of another failure: that is how the others meet the
// same trouble. And once the thread that was told has performed something well, it has got over it:
// then there is none, unless an exception is still being handled.
//
// Only the process that joined the job writes: a forked child does not overwrite its parent's file,
// and one that has joined nothing leaves a file alone that it did not make. Nothing here throws,
// and nothing that cannot be written matters to the caller. Any thread; not for signal handlers.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <sys/types.h>

#include "rendezvous/base/failure_record.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class FailureReports {
 public:
  static constexpr std::chrono::nanoseconds kEchoes = std::chrono::seconds{5};

  // `path`: of the file; empty: there is none. `rank`: this process's, as far as it is known.
  FailureReports(std::string path, int rank);
  FailureReports(const FailureReports&) = delete;
  FailureReports& operator=(const FailureReports&) = delete;

  // This process joins a job, as this rank.
  void joins(int rank) noexcept;
  // The program is about to be told, or the library ends the process for it. `operation`: of the
  // exception, in whose name its words begin; may be empty.
  void add(const Failure& failure, std::string_view operation) noexcept;
  // The calling thread has performed something well. One load where it was told of nothing.
  void overcome() noexcept {
    if (told_this_thread_) [[unlikely]]
      withdraw();
  }

  std::optional<FailureRecord> last() const;

 private:
  void withdraw() noexcept;
  bool may_write() const;
  bool is_echo(const Failure& failure, int64_t now) const;

  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local bool told_this_thread_ =
      false;

  const std::string path_;
  const pid_t made_by_;
  mutable std::mutex mutex_;  // Of what follows.
  pid_t joined_ = 0;          // The process that did; 0: none.
  int rank_;
  std::optional<FailureRecord> last_;
  int64_t told_ns_ = 0;      // When last_ was told first,
  std::thread::id told_to_;  // and to which thread.
  pid_t written_by_ = 0;
};

// The process's own: its path and rank are what the environment said when the library was loaded.
FailureReports& failure_reports();

// CLOCK_MONOTONIC; never the same twice, so that a failure can be known by it.
int64_t new_failure_time();

}  // namespace muster::worker
