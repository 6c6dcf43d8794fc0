// Wraps a backend's WorkStates before they are handed out: their failures fail the group and get
// the operation's and the group's name. Completion is recorded when the program observes it.
#pragma once

#include <memory>
#include <string>

#include "worker_lib/group/group_state.h"
#include "worker_lib/recorder/lane_recorder.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// Keeps `inner` and `state` alive, not the group.
std::shared_ptr<WorkState> observe(std::shared_ptr<WorkState> inner,
                                   std::shared_ptr<GroupState> state, std::string operation,
                                   std::string label, const CallRecord& record = {},
                                   const GroupState::Call& call = {});

}  // namespace muster::worker
