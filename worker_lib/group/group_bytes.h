// Collectives on byte strings of unequal lengths, made of two plain collectives: the lengths go
// first. They block as those do; the second gets what is left of the time-out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/process_group.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class Group;

Outcome<> broadcast_bytes(Group& group, std::string& bytes, int root, const CallOptions& options);
// Returns the strings by group rank.
Outcome<std::vector<std::string>> all_gather_bytes(Group& group, std::string_view bytes,
                                                   const CallOptions& options);

}  // namespace muster::worker
