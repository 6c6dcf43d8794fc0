// Wraps a backend's WorkStates before they are handed out: their failures fail the group, and name
// the operation and the group.
#pragma once

#include <memory>
#include <string>

#include "worker_lib/group/group_state.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// `operation`: its name. Keeps `inner` and `state` alive, not the group.
std::shared_ptr<WorkState> observe(std::shared_ptr<WorkState> inner,
                                   std::shared_ptr<GroupState> state, std::string operation,
                                   std::string label, const GroupState::Call& call = {});

}  // namespace muster::worker
