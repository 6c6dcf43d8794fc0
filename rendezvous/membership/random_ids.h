// Random numbers for the shells: nonces, and ids of an agent's or a host's life. They come from the
// kernel; machines use a seeded generator instead (base/prng.h).
#pragma once

#include <cstdint>

#include "rendezvous/membership/agent_protocol.h"

namespace muster {

uint64_t random_u64();  // Never 0.
membership::Nonce random_nonce();
membership::AgentId random_agent_id();

}  // namespace muster
