// The flags about nodes, and how they select torchrun's modes:
//   1. --standalone: c10d on localhost:0, regardless of backend and endpoint;
//   2. static backend, no endpoint, no --master-port, one node: the same, silently;
//   3. anything else as given: static takes its endpoint from --rdzv-endpoint or --master-addr and
//      --master-port, c10d falls back to localhost:29400, file (torchrun's c10d with
//      store_type=file) takes a path;
//   4. where an engine says how the nodes meet (engines/engine_settings.h), and no flag does: node
//      rank 0 hosts the job at one of a few ports that its id determines.
// Unlike torchrun, --rdzv-id is kept in modes 1 and 2, and --node-rank counts in every backend.
// Keys of --rdzv-conf become typed values here; settings that cannot work are refused, and those
// without effect cause a warning. Pure.
#pragma once

#include "agent/launch_spec.h"
#include "launcher/engines/engine.h"
#include "launcher/settings.h"

namespace muster {

// `engine`: by whose facts the nodes meet; null: by flags.
RendezvousSpec read_rendezvous(Settings& settings, const EngineFacts* engine);

}  // namespace muster
