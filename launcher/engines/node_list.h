// Slurm's short form for lists of nodes, as in its variables; scontrol, which would expand it, is
// often missing in a container. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// The first name of "rack[1-2]gpu[001-004,7]-ib,login": "rack1gpu001-ib". Empty for an empty list.
std::string first_host_of(std::string_view list);

// Which of the list's hosts this is, from 0; nullopt: it is not among them, or the list has more
// than 65,536.
std::optional<int> position_of_host(std::string_view list, std::string_view host);

}  // namespace muster
