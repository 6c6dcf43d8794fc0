// Operations that are made of others: byte strings of unequal lengths, whose lengths go first.
// Blocks as the operations that they consist of do, each with what is left of the time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/process_group.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class Group;

Outcome<> broadcast_bytes(Group& group, std::string& bytes, int root, const CallOptions& options);
// By group rank.
Outcome<std::vector<std::string>> all_gather_bytes(Group& group, std::string_view bytes,
                                                   const CallOptions& options);

}  // namespace muster::worker
