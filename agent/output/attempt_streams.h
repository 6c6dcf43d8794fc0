// Opens everything that the workers of one attempt write to: a pipe, a terminal or a log file for
// each stream, as plan_stream() says. The result owns the read ends; the caller owns the write ends
// and gives them to the workers. Output thread only, since a log disk may hang.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/output/log_tree.h"
#include "agent/output/output.h"
#include "agent/output/worker_stream.h"

namespace muster {

struct WorkerEnd {
  std::unique_ptr<WorkerStream> stream;  // Null if the worker writes to its log file itself.
  std::string log;                       // Path; empty: none.
};

struct WorkerEnds {
  WorkerEnd out;
  WorkerEnd err;
  std::shared_ptr<TailBuffer> both;
  std::optional<FileState> err_at_stop;  // stderr's log file then, if the worker writes it itself.

  std::vector<WorkerStream*> streams() const {
    std::vector<WorkerStream*> both_or_one;
    for (const WorkerEnd* end : {&out, &err}) {
      if (end->stream) both_or_one.push_back(end->stream.get());
    }
    return both_or_one;
  }
};

struct OpenedAttempt {
  std::vector<WorkerEnds> ours;
  std::vector<WorkerStreams> theirs;
};

struct AttemptPlace {
  const OutputOptions* options = nullptr;
  std::string folder;  // attempt_<n>; empty: no files.
  Console* out = nullptr;
  Console* err = nullptr;
};

// All or nothing: an error closes everything that was opened. Opens the descriptors of all workers
// at once, so that a descriptor limit that is too low is reported before any worker runs.
Result<OpenedAttempt> open_attempt_streams(const AttemptPlace& place,
                                           const std::vector<int>& ranks);

}  // namespace muster
