// Turns failures, which internal functions return, into the exception that the public calls throw.
// Nothing else in the library throws across a function of ours.
#pragma once

#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/failure_reports.h"

namespace muster::worker {

// The exception for the program; the failure's text is complete already.
inline DistributedError as_error(const Failure& failure, std::string operation, std::string group) {
  failure_reports().add(failure, operation);
  return {failure.code, failure.message, std::move(operation), std::move(group), failure.ranks};
}

[[noreturn]] inline void raise(const Failure& failure, std::string operation, std::string group) {
  throw as_error(failure, std::move(operation), std::move(group));
}

}  // namespace muster::worker
