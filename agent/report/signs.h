// Derives from what one worker left behind the signs that the judge reads and the error that the
// worker is judged by. A message counts only if it can explain the end: the stop may cause any
// output after it, a worker that printed more long after an error had handled it, and a process has
// no time to print before a fault or a kill. Pure.
#pragma once

#include <optional>
#include <string>

#include "agent/output/output.h"
#include "agent/report/job_report.h"
#include "agent/report/judge.h"
#include "rendezvous/base/time.h"
#include "rendezvous/ring/departure.h"
#include "rendezvous/ring/failure_record.h"

namespace muster {

// The first signal that muster sent to the workers of an attempt on this node.
struct StopMark {
  Instant at{};
  int signal = 0;
  bool killed = false;  // True if SIGKILL followed it.
  Duration earlier{};   // How long before `at` a worker may have got it, if the engine sent it.
};

// One worker of an attempt, as its node saw it. `failure` includes the content of its error file.
struct WorkerRecord {
  WorkerFailure failure;  // Its status is valid once it has ended.
  HostEvidence machine;
  std::optional<Instant> started;
  std::optional<Instant> ended;
  std::optional<Instant> declared;  // Time at which the agent itself declared it failed.
  int order = 0;                    // Position of its end among those of this node.
  AtStop at_stop = AtStop::unknown;
  bool outlived_grace = false;  // True if it had not ended when muster sent SIGKILL.

  WorkerPrinted printed;
  std::optional<WallTime> error_file_written;  // Its mtime.
  std::optional<FailureRecord> library;        // The worker library's last report.
  std::optional<Departure> departure;          // How it had begun to end before muster's stop.
};

// The error that explains a worker's end, in one line; empty if there is none.
struct OwnError {
  std::string text;
  bool is_reason = false;  // True if it ended the worker, or would have.
  Duration before_stop{};  // Time from it to muster's stop, if the worker still ran then.
  std::string site{};      // "train.py:88 step", if no traceback shows the place.

  friend bool operator==(const OwnError&, const OwnError&) = default;
};

struct Examination {
  WorkerSigns signs;
  OwnError error;
};

// `unix_epoch`: 1970 on the steady clock, by the current difference of this machine's two clocks.
Examination examine(const WorkerRecord& record, const std::optional<StopMark>& stop,
                    Instant unix_epoch);

}  // namespace muster
