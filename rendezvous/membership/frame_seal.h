// The seal of one direction of a connection between an agent and the host of a job with a token:
// each frame ends with an HMAC-SHA256 over its number and its bytes, so that no frame can be
// changed, repeated, dropped or inserted unnoticed. Format: PROTOCOL.md. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/mac.h"

namespace muster::membership {

inline constexpr size_t kFrameLengthBytes = 4;  // Every frame begins with it.
// Explains a wrong seal to people.
inline constexpr std::string_view kBrokenSeal =
    "what came was changed, repeated, left out or put in on the way";

class FrameSeal {
 public:
  static constexpr size_t kBytes = sizeof(Mac);  // What a seal adds to a frame.
  static constexpr uint8_t kTypeBit = 0x80;      // Set in a sealed frame's type.

  explicit FrameSeal(const Mac& key) : key_(key) {}

  // Seals `out`. REQUIRES: one whole frame without a seal.
  void close(std::string& out);
  // True if `frame` (whole, with its length) is the other side's next one, as sent.
  bool opens(std::string_view frame);

 private:
  Mac seal_of(std::string_view frame);

  Mac key_;
  uint64_t frames_ = 0;  // Sealed or opened so far: the next one's number.
};

}  // namespace muster::membership
