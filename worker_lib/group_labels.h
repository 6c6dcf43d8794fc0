// How messages name an operation: "all_reduce 17 of group world". Pure: the group and the number
// are parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "worker_lib/failure.h"

namespace muster::worker {

// "group world"; a name that already begins with "group " stays as it is.
inline std::string group_title(std::string_view name) {
  return name.starts_with("group ") ? std::string(name) : "group " + std::string(name);
}

// `number`: of the operation in its group; 0: it has none.
inline std::string operation_label(std::string_view operation, uint64_t number,
                                   std::string_view group_name) {
  std::string label(operation);
  if (number != 0) label += " " + std::to_string(number);
  return label + " of " + group_title(group_name);
}

inline Failure labelled(Failure failure, const std::string& label) {
  failure.message = label + ": " + failure.message;
  return failure;
}

}  // namespace muster::worker
