// The part of PMI-1 that finds rank 0's address. Hydra (MPICH, Intel MPI), `srun --mpi=pmi2` and
// Flux speak it: lines of text over the descriptor in PMI_FD, one answer for each request. There is
// no standard but MPICH: src/pmi/src/pmi_v1.c and src/pm/hydra/proxy/pmip_pmi_v1.c. Pure: the
// caller sends and reads the lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "agent/meeting/pmi_answer.h"
#include "rendezvous/base/error.h"

namespace muster {

inline constexpr size_t kPmi1LineBytesMax = 4096;

struct Pmi1Question {
  int64_t rank = 0;  // PMI_RANK and PMI_SIZE, which are not part of the protocol.
  int64_t size = 0;
  std::string record;  // pmi_record(); only rank 0's is published.
};

// Sends a line and returns the next one received; both without the newline.
using Pmi1Exchange = std::function<Result<std::string>(const std::string& request)>;

// Returns once all processes of the launch have called it, or a request fails.
Result<PmiAnswer> ask_pmi1(const Pmi1Question& question, const Pmi1Exchange& exchange);

}  // namespace muster
