// The only source of randomness for machines and simulators: seeded at construction, with the same
// sequence on every platform (xoshiro256** by Blackman and Vigna, seeded by splitmix64).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace muster {

class Prng {
 public:
  explicit Prng(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      word = z ^ (z >> 31);
    }
  }

  uint64_t next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound); the modulo bias is below 2^-32 for small bounds. REQUIRES: bound > 0.
  uint64_t below(uint64_t bound) { return next() % bound; }

  // True with probability numerator / denominator.
  bool chance(uint64_t numerator, uint64_t denominator) { return below(denominator) < numerator; }

 private:
  std::array<uint64_t, 4> state_{};
};

}  // namespace muster
