// Switches for bugs that are planted on purpose: the simulator proves its worth by finding them.
// They exist only in the copies of the machines that the simulator's tests compile for themselves,
// with MUSTER_PLANTED_BUGS; elsewhere the condition is the constant false and no code of them is
// compiled in.
#pragma once

#ifdef MUSTER_PLANTED_BUGS
#include "tests/sim/planted.h"
#define PLANTED(bug) (::muster::is_planted(::muster::bug))
#else
#define PLANTED(bug) false
#endif
