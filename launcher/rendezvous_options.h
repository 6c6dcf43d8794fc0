// The flags about nodes, and torchrun's choice of a mode from them:
//   1. --standalone: c10d on localhost:0, whatever backend and endpoint say;
//   2. static backend, no endpoint, no --master-port, one node: the same, silently;
//   3. anything else as given: static takes its endpoint from --rdzv-endpoint or --master-addr and
//      --master-port, c10d falls back to localhost:29400.
// Unlike torchrun, --rdzv-id is kept in modes 1 and 2. What one machine cannot serve yet is refused
// in one place, at the end. Pure.
#pragma once

#include "agent/launch_spec.h"
#include "launcher/settings.h"

namespace muster {

RendezvousSpec read_rendezvous(Settings& settings);

}  // namespace muster
