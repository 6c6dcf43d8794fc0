// All bugs that rendezvous/base/planted.h may ask for: of the worker group, of the membership, of
// the choice of the host and of agreements. Test-only.
#pragma once

#include "tests/sim/agreement_planted_bugs.h"
#include "tests/sim/hosting_planted_bugs.h"
#include "tests/sim/membership_planted_bugs.h"
#include "tests/sim/planted_bugs.h"
