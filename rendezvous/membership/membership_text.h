// How both sides of the rendezvous speak of time, and its host of nodes and of names that others
// chose, which may hold anything. Pure.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/time.h"

namespace muster::membership {

// "3 s", "250 ms": rounded up to whole seconds from one second on.
std::string whole_seconds(Duration duration);

// "1.2 s".
std::string precise_seconds(Duration duration);

// A name that somebody else chose, fit for a line of ours: no control characters, not long.
std::string quiet_name(std::string_view name);

// A sentence of another node: no control characters, no longer than half a line may be.
std::string quiet_line(std::string_view text);

// "1 node", "3 nodes".
std::string nodes_text(int count);

}  // namespace muster::membership
