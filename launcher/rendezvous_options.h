// Reads the flags about nodes, which select one of torchrun's modes, or the fourth:
//   1. --standalone: c10d on localhost:0, regardless of backend and endpoint;
//   2. static backend, no endpoint, no --master-port, one node: the same, silently;
//   3. anything else as given: static takes its endpoint from --rdzv-endpoint or --master-addr and
//      --master-port, c10d falls back to localhost:29400, file (torchrun's c10d with
//      store_type=file) takes a path;
//   4. if an engine says how the nodes meet (engine_settings.h) and no flag does: node rank 0 hosts
//      the job at one of a few ports that the job's id determines.
// Unlike torchrun, keeps --rdzv-id in modes 1 and 2, and honours --node-rank in every backend.
// Refuses settings that cannot work and warns of those without effect. Pure.
#pragma once

#include "agent/launch_spec.h"
#include "launcher/engines/engine.h"
#include "launcher/settings.h"

namespace muster {

// `engine`: the facts by which the nodes meet; null: they meet by flags.
RendezvousSpec read_rendezvous(Settings& settings, const EngineFacts* engine);

}  // namespace muster
