// The job token, which tells the agents of a job from strangers. It is never sent. Each side sends
// a nonce and proves that it knows the token by an HMAC-SHA256 over its role, the job id and both
// nonces, so a proof is useless on another connection, for another job, or for the other side. Any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/mac.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster::membership {

inline constexpr size_t kTokenBytesMax = 4096;

// The proofs of the agent (in its Join) and the host (in its Welcome). All zero for an empty token.
Proof agent_proof(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                  const Nonce& host_nonce);
Proof host_proof(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                 const Nonce& host_nonce);

// By which the workers of the job know each other, on all nodes; `seed`: of the host's Welcome.
// With a token, who reads the connection learns nothing of it.
Mac worker_secret(std::string_view token, std::string_view job_id, const Mac& seed);

// The file's bytes without one trailing newline; may wait some seconds for the writer of a pipe.
// Fails if the file cannot be read, is empty or is longer than kTokenBytesMax.
Result<std::string> read_token_file(const std::string& path);

}  // namespace muster::membership
