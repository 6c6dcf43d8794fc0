// Identifies a caller by its first bytes: one port serves the store (PyTorch's TCPStore protocol),
// the agents and the probe of a host election. All others are described as well as possible,
// because a stranger usually means a wrong port number in some configuration. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// The probe of an election (claim.h): the magic, then a nonce of kNonceBytes.
inline constexpr std::string_view kProbeMagic = "MSPROBE1";
inline constexpr size_t kNonceBytes = 16;
inline constexpr size_t kProbeBytes = kProbeMagic.size() + kNonceBytes;
// The one byte that answers a probe.
inline constexpr char kProbeIsOurs = '\x01';
inline constexpr char kProbeIsNotOurs = '\x02';

enum class Caller {
  unknown_yet,  // ambiguous so far; wait for more bytes
  store_client,
  agent,
  probe,  // complete
  stranger,
};

// REQUIRES: agent_magic does not begin with a zero byte and is no prefix of kProbeMagic.
Caller who_calls(std::string_view bytes, std::string_view agent_magic);

// Describes a stranger: "a web browser or other HTTP client (GET /metrics HTTP/1.1)". Always one
// printable line of bounded length, whatever the bytes are.
std::string describe_stranger(std::string_view bytes);

}  // namespace muster
