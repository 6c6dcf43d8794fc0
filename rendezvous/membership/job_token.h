// The job token, which authenticates the agents of a job. It is never sent. Each side sends a nonce
// and seals its frames with a key made from the token, the job id and both nonces: this proves that
// it knows the token, and makes its frames worthless on another connection, for another job, or in
// the other direction. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/mac.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/frame_seal.h"

namespace muster::membership {

inline constexpr size_t kTokenBytesMax = 4096;

// The seals of one connection, by sender.
struct FrameSeals {
  FrameSeal agent;
  FrameSeal host;
};
// REQUIRES: a token.
FrameSeals frame_seals(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                       const Nonce& host_nonce);

// Secret by which the job's workers on all nodes recognize each other; `seed` is the Welcome's.
// With a token, an eavesdropper on the connection does not learn it.
Mac worker_secret(std::string_view token, std::string_view job_id, const Mac& seed);

// Returns the file's bytes without a trailing newline; may wait some seconds for a pipe's writer.
// Fails if the file cannot be read, is empty or is longer than kTokenBytesMax.
Result<std::string> read_token_file(const std::string& path);

}  // namespace muster::membership
