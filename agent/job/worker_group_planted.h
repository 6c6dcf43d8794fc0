// Bugs planted on purpose, which the simulator must find. They exist only in the copy of the
// machine that the simulator's tests compile with MUSTER_PLANTED_BUGS; elsewhere the condition is
// the constant false and none of their code is compiled.
#pragma once

#ifdef MUSTER_PLANTED_BUGS
#include "tests/sim/planted_bugs.h"
#define PLANTED(name) (::muster::planted_bug() == ::muster::PlantedBug::name)
#else
#define PLANTED(name) false
#endif
