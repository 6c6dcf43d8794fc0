// How the members of a group tell each other what a backend needs to connect them (addresses,
// NCCL's id), through the group's set-up store.
#pragma once

#include <string>
#include <vector>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

// Writes `value` (any bytes) under this member's rank and `topic` and reads all members' values, by
// group rank. A failure of code timeout names the missing ranks.
Outcome<std::vector<std::string>> exchange_through_store(GroupSetup& setup,
                                                         const std::string& topic,
                                                         const std::string& value);

// Waits for keys of the set-up store. False: not there by the deadline.
Outcome<bool> wait_in_store(GroupSetup& setup, const std::vector<std::string>& keys);

}  // namespace muster::worker
