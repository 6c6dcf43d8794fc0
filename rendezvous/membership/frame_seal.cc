#include "rendezvous/membership/frame_seal.h"

#include <cstring>

#include "rendezvous/base/error.h"
#include "rendezvous/net/field_codec.h"

namespace muster::membership {

Mac FrameSeal::seal_of(std::string_view frame) {
  std::string number;
  FieldWriter(number).integer(frames_++);
  return mac_of(raw_bytes(key_), {number, frame});
}

void FrameSeal::close(std::string& out) {
  CHECK(out.size() > kFrameLengthBytes);
  std::string length;
  FieldWriter(length).integer(static_cast<uint32_t>(out.size() - kFrameLengthBytes + kBytes));
  out.replace(0, kFrameLengthBytes, length);
  out[kFrameLengthBytes] =
      static_cast<char>(static_cast<uint8_t>(out[kFrameLengthBytes]) | kTypeBit);
  out += raw_bytes(seal_of(out));
}

bool FrameSeal::opens(std::string_view frame) {
  if (frame.size() <= kFrameLengthBytes + kBytes) return false;
  Mac seal{};
  const size_t sealed = frame.size() - kBytes;
  std::memcpy(seal.data(), frame.data() + sealed, kBytes);
  return same_mac(seal, seal_of(frame.substr(0, sealed)));
}

}  // namespace muster::membership
