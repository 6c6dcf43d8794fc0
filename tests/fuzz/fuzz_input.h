// Shared by the fuzz targets. A target is one file with LLVMFuzzerTestOneInput, which feeds hostile
// bytes to a decoder and checks what must hold for any input; the sanitizers check the rest. Inputs
// are close to the wire format, so that the seeds in corpus/NAME.txt are readable. Decoders that
// take bytes in pieces are fed twice, whole and cut, with the same result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/prng.h"

namespace muster::fuzz {

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Removes up to `size` bytes from the front.
inline std::string_view take(std::string_view& input, size_t size) {
  const std::string_view taken = input.substr(0, size);
  input.remove_prefix(taken.size());
  return taken;
}

inline uint8_t take_byte(std::string_view& input) {
  const std::string_view taken = take(input, 1);
  return taken.empty() ? uint8_t{0} : static_cast<uint8_t>(taken[0]);
}

// Calls feed(piece) for pieces of the input, mostly of a few bytes, sometimes of many.
template <typename Feed>
void feed_in_pieces(std::string_view input, uint64_t seed, const Feed& feed) {
  Prng prng(seed);
  while (!input.empty()) {
    const uint64_t size = 1 + prng.below(prng.chance(1, 4) ? 300 : 9);
    feed(take(input, static_cast<size_t>(size)));
  }
}

}  // namespace muster::fuzz
