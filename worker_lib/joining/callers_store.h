// A store of the program, over which muster_group_join() makes a group. Only the
// joining thread calls it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class CallersStore {
 public:
  virtual ~CallersStore() = default;
  virtual Outcome<> set(std::string_view key, std::string_view value) = 0;
  // Waits until the key is set; nullopt: not by the deadline.
  virtual Outcome<std::optional<std::string>> get(std::string_view key, Deadline deadline) = 0;
};

}  // namespace muster::worker
