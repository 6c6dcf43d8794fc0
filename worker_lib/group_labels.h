// Names operations and groups in messages: "all_reduce 17 of group world". Pure: group and number
// are parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "worker_lib/failure.h"

namespace muster::worker {

// "group world"; a name that already begins with "group " stays as it is.
inline std::string group_title(std::string_view name) {
  return name.starts_with("group ") ? std::string(name) : "group " + std::string(name);
}

// `number`: the operation's in its group; 0: none.
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
