// How the agent's side of the rendezvous speaks of time, in its lines for people. Pure; shared by
// the files of Member alone.
#pragma once

#include <string>

#include "rendezvous/base/time.h"

namespace muster::member {

// "3 s", "250 ms": rounded up to whole seconds from one second on.
std::string whole_seconds(Duration duration);

}  // namespace muster::member
