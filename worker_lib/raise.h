// Turns failures, which internal functions return, into the exception that the public calls throw.
// Nothing else in the library throws across a function of ours.
#pragma once

#include <string>
#include <utility>

#include "worker_lib/failure.h"
#include "worker_lib/failure_reports.h"
#include "worker_lib/members.h"

namespace muster::worker {

// The exception for the program; the failure's text is complete already.
inline DistributedError as_error(const Failure& failure, std::string operation, std::string group,
                                 const KnownRanks& known_ranks = nullptr) {
  Failure known = failure;
  known.ranks = as_known(std::move(known.ranks), known_ranks);
  failure_reports().add(known);
  return {known.code, known.message, std::move(operation), std::move(group), known.ranks};
}

[[noreturn]] inline void raise(const Failure& failure, std::string operation, std::string group,
                               const KnownRanks& known_ranks = nullptr) {
  throw as_error(failure, std::move(operation), std::move(group), known_ranks);
}

}  // namespace muster::worker
