// The job token, which tells the agents of a job from strangers. It is never sent. Each side sends
// a nonce, and seals its frames with a key that is made from the token, the job id and both nonces:
// so it proves that it knows the token, and no frame is worth anything on another connection, for
// another job, or in the other direction. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/mac.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/frame_seal.h"

namespace muster::membership {

inline constexpr size_t kTokenBytesMax = 4096;

// The seals of one connection: of what its agent sends, and of what the host sends.
struct FrameSeals {
  FrameSeal agent;
  FrameSeal host;
};
// REQUIRES: a token.
FrameSeals frame_seals(std::string_view token, std::string_view job_id, const Nonce& agent_nonce,
                       const Nonce& host_nonce);

// By which the workers of the job know each other, on all nodes; `seed`: of the host's Welcome.
// With a token, who reads the connection learns nothing of it.
Mac worker_secret(std::string_view token, std::string_view job_id, const Mac& seed);

// The file's bytes without one trailing newline; may wait some seconds for the writer of a pipe.
// Fails if the file cannot be read, is empty or is longer than kTokenBytesMax.
Result<std::string> read_token_file(const std::string& path);

}  // namespace muster::membership
