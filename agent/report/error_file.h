// The error file of torch's elastic contract: a worker under torch's @record (or muster's
// --run-path) writes its uncaught exception to $TORCHELASTIC_ERROR_FILE, and the launcher copies
// the culprit's to the file that this variable names in its own environment. Pure: contents in,
// contents out. Any content is accepted; what cannot be parsed is shown as it is.
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
  std::optional<int64_t> unix_time_s;  // As recorded; nullopt if absent or not a number.
  bool well_formed = true;             // false: `message` is the raw content.

  friend bool operator==(const WorkerError&, const WorkerError&) = default;
};

// nullopt if the content is only white space: there is no error.
std::optional<WorkerError> parse_error_file(std::string_view content);

// The content of the launcher's own error file after a failure: the culprit's error file with
// message.errorCode set to its exit code (for a signal, the negative signal number, as torch does)
// if message is an object. nullopt if the culprit left no error file, or one that is not JSON.
std::optional<std::string> launcher_error_file(const WorkerFailure& culprit);

// The same for an error of muster itself, in the shape that @record writes.
std::string launcher_error_file(const Error& error, WallTime time);

}  // namespace muster
