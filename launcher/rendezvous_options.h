// The flags about nodes, and torchrun's choice of a mode from them:
//   1. --standalone: c10d on localhost:0, whatever backend and endpoint say;
//   2. static backend, no endpoint, no --master-port, one node: the same, silently;
//   3. anything else as given: static takes its endpoint from --rdzv-endpoint or --master-addr and
//      --master-port, c10d falls back to localhost:29400, file (torchrun's c10d with
//      store_type=file) takes a path.
// Unlike torchrun, --rdzv-id is kept in modes 1 and 2, and --node-rank counts in every backend.
// Keys of --rdzv-conf become typed values here; what cannot work is refused, and what has no effect
// is said. Pure.
#pragma once

#include "agent/launch_spec.h"
#include "launcher/settings.h"

namespace muster {

RendezvousSpec read_rendezvous(Settings& settings);

}  // namespace muster
