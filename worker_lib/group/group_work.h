// The works of backends as they are handed out: what they fail with fails the group, and names the
// operation and the group.
#pragma once

#include <memory>
#include <string>

#include "worker_lib/group/group_standing.h"
#include "worker_lib/group/work_state.h"

namespace muster::worker {

// `operation`: its name. Keeps `inner` and `standing` alive, not the group.
std::shared_ptr<WorkState> observe(std::shared_ptr<WorkState> inner,
                                   std::shared_ptr<GroupStanding> standing, std::string operation,
                                   std::string label, const GroupStanding::Call& call = {});

}  // namespace muster::worker
