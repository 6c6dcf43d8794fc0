// Switches for bugs that are planted on purpose: the simulator proves its worth by finding them.
// They exist only in the copies of the machines that the simulator's tests compile for themselves,
// with MUSTER_PLANTED_BUGS; elsewhere the condition is the constant false and no code of them is
// compiled in.
#pragma once

#ifdef MUSTER_PLANTED_BUGS
#include "tests/sim/membership_planted_bugs.h"
#define MEMBERSHIP_PLANTED(name) \
  (::muster::membership_bug_switch() == ::muster::MembershipBug::name)
#else
#define MEMBERSHIP_PLANTED(name) false
#endif
