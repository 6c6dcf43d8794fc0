// The error file of torch's elastic contract: a worker under torch's @record (or muster's
// --run-path) leaves its uncaught exception in $TORCHELASTIC_ERROR_FILE, and the launcher hands the
// culprit's on to whoever set that variable for the launcher. Pure: contents in, contents out.
// Whatever a program writes there is accepted; what makes no sense is shown as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/report/job_report.h"
#include "rendezvous/base/error.h"

namespace muster {

struct WorkerError {
  std::string message;                 // "ValueError: boom"; may hold several lines.
  std::string callstack;               // Python's traceback text; empty: none was recorded.
  std::optional<int64_t> unix_time_s;  // As recorded; none if absent or not a number.
  bool well_formed = true;             // false: `message` is the raw content.

  friend bool operator==(const WorkerError&, const WorkerError&) = default;
};

// Content with nothing but white space means that there is no error: none.
std::optional<WorkerError> parse_error_file(std::string_view content);

// What to write into the launcher's own error file when a job failed: the culprit's error file with
// message.errorCode set to `exit_code` (negative signal number for a signal, as torch does) where
// message is an object. None when the culprit left no error file, or one that is not JSON.
std::optional<std::string> launcher_error_file(const WorkerFailure& culprit);

// The same for an error of muster itself, in the shape that @record writes.
std::string launcher_error_file(const Error& error, WallTime time);

}  // namespace muster
