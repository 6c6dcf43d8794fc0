// From what one worker left behind to what the judge reads of it, and to the error that it is
// judged by. Pure. Words are believed only as far as they can be why the worker ended: what it
// printed after the stop may be the stop's doing, what it printed long before it went on is past,
// and before a fault or a kill a process says nothing.
#pragma once

#include <optional>
#include <string>

#include "agent/output/output.h"
#include "agent/report/job_report.h"
#include "agent/report/judge.h"
#include "rendezvous/base/failure_record.h"
#include "rendezvous/base/time.h"

namespace muster {

// Muster's first signal to the workers of an attempt on this node.
struct StopMark {
  Instant at{};
  int signal = 0;
  bool killed = false;  // SIGKILL followed it.
};

// One worker of an attempt, as its node saw it. Its failure holds the bytes of its error file.
struct WorkerRecord {
  WorkerFailure failure;  // Its end counts once it has ended.
  HostEvidence machine;
  std::optional<Instant> started;
  std::optional<Instant> ended;
  std::optional<Instant> declared;  // When the agent itself called it failed.
  int order = 0;                    // Of its end among those of this node.
  AtStop at_stop = AtStop::unknown;

  WorkerPrinted printed;
  std::optional<WallTime> error_file_written;  // Its mtime.
  std::optional<FailureRecord> library;        // What the worker library reported to it last.
};

// The error that explains a worker's end, in one line; empty: none does.
struct OwnError {
  std::string text;
  bool is_reason = false;  // It is what ended the worker, or would have ended it.
  Duration before_stop{};  // Of a worker that went on after it, until muster stopped it.

  friend bool operator==(const OwnError&, const OwnError&) = default;
};

struct Examination {
  WorkerSigns signs;
  OwnError error;
};

// `unix_epoch`: the steady instant of 1970, as this machine's two clocks stand now.
Examination examine(const WorkerRecord& record, const std::optional<StopMark>& stop,
                    Instant unix_epoch);

}  // namespace muster
