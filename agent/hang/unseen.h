// Calls on a device whose ends are not seen: of NCCL's, a plugin learns that they are launched, and
// no more. What is known is that a call which needs a member cannot be complete before that member
// has made it, nor what was called behind it, since a device performs a group's calls in order. So
// a digest's `completed` becomes, for each such group, the last call that may be complete: of the
// members that wait for nobody, `called`. Whether a call that all have made is queued, runs without
// progress or has ended on some cannot be told, and nobody is accused of it. Pure.
#pragma once

#include <vector>

#include "agent/hang/rank_state.h"

namespace muster::hang {

// Again after each change of a digest. A receive waits for its send; a send waits for nobody, since
// it may be buffered.
void settle_unseen(std::vector<RankState>& ranks);

}  // namespace muster::hang
