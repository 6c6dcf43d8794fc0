// Slurm's short forms for lists of nodes and of counts, as in its variables; scontrol, which would
// expand them, is often missing in a container. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// The first name of "rack[1-2]gpu[001-004,7]-ib,login": "rack1gpu001-ib". Empty for an empty list.
std::string first_host_of(std::string_view list);

// The count for the node with this number in "2(x3),1": 2 for nodes 0 to 2, 1 for node 3, and 0 if
// the list has no such node or is malformed.
int tasks_on_node(std::string_view counts, int node);

}  // namespace muster
