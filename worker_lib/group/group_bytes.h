// Collectives on byte strings of unequal lengths, made of two plain collectives: the lengths go
// first. They block as those do; the second gets what is left of the time-out.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/process_group.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class Group;

// Sends the `bytes` of the root; the others call `make_room` once, with the number of bytes.
Outcome<> broadcast_bytes(Group& group, std::string_view bytes, int root,
                          const CallOptions& options,
                          const std::function<void*(size_t)>& make_room);
// Returns the strings by group rank.
Outcome<std::vector<std::string>> all_gather_bytes(Group& group, std::string_view bytes,
                                                   const CallOptions& options);

}  // namespace muster::worker
