// Slurm's short form for lists of nodes, as in its variables; scontrol, which would expand it, is
// often missing in a container. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// The first name of "rack[1-2]gpu[001-004,7]-ib,login": "rack1gpu001-ib". Empty for an empty list.
std::string first_host_of(std::string_view list);

}  // namespace muster
