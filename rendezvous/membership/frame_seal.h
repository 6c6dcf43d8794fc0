// The seal of one direction of a connection between an agent and the host, where the job has a
// token: each frame ends with an HMAC-SHA256 over its number and its bytes, so nobody on the path
// can change, repeat, leave out or put in a frame unnoticed. PROTOCOL.md has the format. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/mac.h"

namespace muster::membership {

inline constexpr size_t kFrameLengthBytes = 4;  // With which every frame begins.
// For people; of a seal that does not fit.
inline constexpr std::string_view kBrokenSeal =
    "what came was changed, repeated, left out or put in on the way";

class FrameSeal {
 public:
  static constexpr size_t kBytes = sizeof(Mac);  // What a seal adds to a frame.
  static constexpr uint8_t kTypeBit = 0x80;      // Of the type of a sealed frame.

  explicit FrameSeal(const Mac& key) : key_(key) {}

  // Seals the frame that `out` consists of.
  // REQUIRES: a whole frame without a seal.
  void close(std::string& out);
  // Whether `frame`, a whole one with its length, is the next one of the other side, as it was
  // sent.
  bool opens(std::string_view frame);

 private:
  Mac seal_of(std::string_view frame);

  Mac key_;
  uint64_t frames_ = 0;  // Sealed or opened so far: the number of the next one.
};

}  // namespace muster::membership
