// Where other machines may reach this one, said before any of them has tried: rank 0 of a launch
// publishes it through PMI (pmi_child.h). interface_choice.h decides later, when it is known which
// of the addresses leads to the peers. Pure.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/net/interface_choice.h"

namespace muster {

// Addresses with commas between them, the likely ones first, at most 8: of interfaces that are up,
// IPv4 before IPv6, then what is on the loopback interface (some clusters route to addresses
// there), then container plumbing. None is link-local. "127.0.0.1" if there is no other.
std::string reachable_text(const std::vector<Interface>& interfaces);

}  // namespace muster
