// Opens everything that the workers of one attempt print through: a pipe, a terminal or a log file
// for each stream, as the plan says. The read ends belong to the result, the write ends to the
// caller, who gives them to the workers. All or nothing: one failure closes what was opened. Output
// thread only, since a log disk may hang.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/output/log_tree.h"
#include "agent/output/output.h"
#include "agent/output/worker_stream.h"

namespace muster {

// Our side of one worker.
struct WorkerEnds {
  std::unique_ptr<WorkerStream> out;  // Null if the worker writes its file itself.
  std::unique_ptr<WorkerStream> err;
  std::string out_log;
  std::string err_log;
  std::shared_ptr<TailBuffer> both;
  std::optional<FileState> err_at_stop;  // Of a stderr that it writes itself.
};

struct OpenedAttempt {
  std::vector<WorkerEnds> ours;
  std::vector<WorkerStreams> theirs;
};

struct AttemptPlace {
  const OutputOptions* options = nullptr;
  std::string folder;  // attempt_<n>; empty if there are no files.
  Console* out = nullptr;
  Console* err = nullptr;
};

// All or nothing. The descriptors of every worker are opened before the first one starts, so that a
// limit that is too low is an error of the start, not of its middle.
Result<OpenedAttempt> open_attempt_streams(const AttemptPlace& place,
                                           const std::vector<int>& ranks);

}  // namespace muster
