// Parses Slurm's short form for lists of nodes; scontrol, which expands it, is often missing in a
// container. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// The first name of "rack[1-2]gpu[001-004,7]-ib,login": "rack1gpu001-ib". Empty for an empty list.
std::string first_host_of(std::string_view list);

// The host's position in the list, from 0; nullopt if it is not there, or beyond 65,536 hosts.
std::optional<int> position_of_host(std::string_view list, std::string_view host);

}  // namespace muster
