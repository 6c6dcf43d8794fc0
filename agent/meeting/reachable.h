// The addresses at which other machines may reach this one, guessed before any has connected: rank
// 0 of a launch publishes them through PMI (pmi_child.h). interface_choice.h decides later, when it
// is known which address leads to the peers. Pure.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/net/interface_choice.h"

namespace muster {

// At most 8 addresses of interfaces that are up, with commas between them, likely ones first:
// network interfaces, then other addresses of the loopback interface (some clusters route to
// these), then container plumbing; in each group IPv4 before IPv6. None is link-local or loopback;
// "127.0.0.1" if there is no other.
std::string reachable_text(const std::vector<Interface>& interfaces);

}  // namespace muster
