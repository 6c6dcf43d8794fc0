// Random numbers of the agents' protocol, for its shells: nonces, and the ids of one agent process
// or host instance.
#pragma once

#include <cstdint>

#include "rendezvous/base/random.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

// Never 0.
inline uint64_t random_u64() {
  uint64_t value = 0;
  while (value == 0)
    value = random_value<uint64_t>();
  return value;
}

inline membership::Nonce random_nonce() {
  return random_value<membership::Nonce>();
}

inline membership::AgentId random_agent_id() {
  return {random_u64(), random_u64()};
}

}  // namespace muster
