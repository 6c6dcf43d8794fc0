// Helpers for the public handle of a group: every call checks that there is a group, and turns
// failures into exceptions.
#pragma once

#include <memory>
#include <utility>

#include "worker_lib/failure.h"
#include "worker_lib/group/group.h"
#include "worker_lib/raise.h"

namespace muster::worker {

template <typename T>
T value_or_raise(Outcome<T> outcome, const char* operation, const Group& group) {
  if (outcome) [[likely]] {
    failure_reports().overcome();
    return std::move(*outcome);
  }
  worker::raise(outcome.error(), operation, group.name(), group.known_ranks());
}

[[noreturn]] void throw_empty_group(const char* operation);

inline Group& checked(const std::shared_ptr<Group>& group, const char* operation) {
  if (group == nullptr) [[unlikely]]
    throw_empty_group(operation);
  return *group;
}

}  // namespace muster::worker
