// Switches for bugs that are planted on purpose in the Hosting machine, for the simulator to find.
// Elsewhere the condition is the constant false and no code of them is compiled in, as in
// membership/planted.h.
#pragma once

#ifdef MUSTER_PLANTED_BUGS
#include "tests/sim/hosting_planted_bugs.h"
#define HOSTING_PLANTED(name) (::muster::hosting_bug_switch() == ::muster::HostingBug::name)
#else
#define HOSTING_PLANTED(name) false
#endif
