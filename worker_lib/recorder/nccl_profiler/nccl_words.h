// NCCL's names of functions and element types, as its events have them (ncclFuncToString(),
// ncclDatatypeToString()), in the ring's words. Pure.
#pragma once

#include "rendezvous/ring/call_rules.h"

namespace muster::nccl {

// "AllReduce"; unknown for nullptr and for what no rule compares.
ring::CallKind kind_in(const char* function);
// "ncclFloat32". NCCL has no word for uint8 ("Unknown").
ring::ElementType type_in(const char* datatype);

}  // namespace muster::nccl
