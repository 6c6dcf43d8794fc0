// Identifies a client by its first bytes: one port serves the store (PyTorch's TCPStore protocol),
// the agents and the probe of a host election. Any other client is described in detail, because it
// usually means a wrong port number in some configuration. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// The probe of a host election (claim.h): the magic, then a nonce of kNonceBytes.
inline constexpr std::string_view kProbeMagic = "MSPROBE1";
inline constexpr size_t kNonceBytes = 16;
inline constexpr size_t kProbeBytes = kProbeMagic.size() + kNonceBytes;
// The one-byte answers to a probe.
inline constexpr char kProbeIsOurs = '\x01';
inline constexpr char kProbeIsNotOurs = '\x02';

enum class Caller {
  unknown_yet,  // needs more bytes
  store_client,
  agent,
  probe,  // complete
  stranger,
};

// REQUIRES: agent_magic does not begin with a zero byte and is no prefix of kProbeMagic.
Caller who_calls(std::string_view bytes, std::string_view agent_magic);

// Returns one printable line: "a web browser or other HTTP client (GET /metrics HTTP/1.1)".
std::string describe_stranger(std::string_view bytes);

}  // namespace muster
