// The hash of the store's maps: SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input
// PRF", 2012) with a secret seed. The keys come from the network: with std::hash an attacker could
// choose a million keys that share a bucket. About 10 ns for a short key. Deliberately not
// noexcept: libstdc++ then stores the hash with the key instead of recomputing it in searches.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace muster {

class KeyedHash {
 public:
  using is_transparent = void;

  explicit KeyedHash(uint64_t seed = 0) : k0_(seed), k1_(seed * 0x9e3779b97f4a7c15u + 1) {}

  size_t operator()(std::string_view key) const {
    uint64_t v[4] = {k0_ ^ 0x736f6d6570736575u, k1_ ^ 0x646f72616e646f6du,
                     k0_ ^ 0x6c7967656e657261u, k1_ ^ 0x7465646279746573u};
    const char* bytes = key.data();
    size_t left = key.size();
    for (; left >= 8; bytes += 8, left -= 8)
      absorb(v, load(bytes, 8));
    absorb(v, load(bytes, left) | static_cast<uint64_t>(key.size()) << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
      round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
  }

 private:
  static uint64_t load(const char* bytes, size_t count) {
    uint64_t word = 0;
    if (count > 0) std::memcpy(&word, bytes, count);
    return word;
  }
  static void absorb(uint64_t* v, uint64_t word) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
  }
  static void round(uint64_t* v) {
    v[0] += v[1];
    v[1] = std::rotl(v[1], 13) ^ v[0];
    v[0] = std::rotl(v[0], 32);
    v[2] += v[3];
    v[3] = std::rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = std::rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = std::rotl(v[1], 17) ^ v[2];
    v[2] = std::rotl(v[2], 32);
  }

  uint64_t k0_;
  uint64_t k1_;
};

}  // namespace muster
