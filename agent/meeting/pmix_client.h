// Asks PMIx for rank 0's address (Open MPI's mpirun, PRRTE, `srun --mpi=pmix`) by libpmix, which is
// opened at run time. The library has threads, reads its environment, and may hang or crash: call
// it only in a process that can be killed (pmi_child.h).
#pragma once

#include <string>

#include "agent/meeting/pmi_answer.h"
#include "rendezvous/base/error.h"

namespace muster {

// `record`: pmi_record(), of which rank 0's is published. Returns when all processes of the launch
// have called it, or something fails. REQUIRES: PMIX_NAMESPACE and PMIX_RANK are set, and the
// address of a server, without which PMIx_Init() makes a world of one.
Result<PmiAnswer> ask_pmix(const std::string& record);

}  // namespace muster
