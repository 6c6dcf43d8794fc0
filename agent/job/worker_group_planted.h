// The simulator proves its worth by finding bugs that are planted on purpose. They exist only in
// the copy of the machine that the simulator's tests compile for themselves, with
// MUSTER_PLANTED_BUGS; elsewhere the condition is the constant false and nothing of them is
// compiled in.
#pragma once

#ifdef MUSTER_PLANTED_BUGS
#include "tests/sim/planted_bugs.h"
#define PLANTED(name) (::muster::planted_bug() == ::muster::PlantedBug::name)
#else
#define PLANTED(name) false
#endif
