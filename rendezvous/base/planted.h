// Switches for bugs planted on purpose, which the simulator must find. Its tests compile their own
// copies of the machines with MUSTER_PLANTED_BUGS; elsewhere PLANTED() is the constant false.
#pragma once

#ifdef MUSTER_PLANTED_BUGS
#include "tests/sim/planted.h"
#define PLANTED(bug) (::muster::is_planted(::muster::bug))
#else
#define PLANTED(bug) false
#endif
