// Translates the names of functions and element types in NCCL's events (ncclFuncToString(),
// ncclDatatypeToString()) into the ring's enums. Pure.
#pragma once

#include "rendezvous/ring/call_rules.h"

namespace muster::nccl {

// `function`: "AllReduce". Returns `unknown` for nullptr and for functions that no rule compares.
ring::CallKind kind_in(const char* function);
// `datatype`: "ncclFloat32". NCCL has no name for uint8: it says "Unknown".
ring::ElementType type_in(const char* datatype);

}  // namespace muster::nccl
