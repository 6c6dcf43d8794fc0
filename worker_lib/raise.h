// Turns the failures that internal functions return into the exception that public calls throw.
// Nothing else in the library throws across its own functions.
#pragma once

#include <string>
#include <utility>

#include "worker_lib/failure.h"
#include "worker_lib/failure_reports.h"
#include "worker_lib/members.h"

namespace muster::worker {

// Makes the exception and records it as reported. The failure's text is already complete.
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
