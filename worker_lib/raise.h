// Turns failures, which internal functions return, into the exception that the public calls throw.
// Nothing else in the library throws across a function of ours.
#pragma once

#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/failure_reports.h"

namespace muster::worker {

// The exception for the program; the failure's text is complete already.
inline DistributedError as_error(const Failure& failure, std::string operation, std::string group) {
  Failure known = failure;
  known.ranks = failure_reports().as_known(group, std::move(known.ranks));
  failure_reports().add(known, operation);
  return {known.code, known.message, std::move(operation), std::move(group), known.ranks};
}

[[noreturn]] inline void raise(const Failure& failure, std::string operation, std::string group) {
  throw as_error(failure, std::move(operation), std::move(group));
}

}  // namespace muster::worker
