#include "rendezvous/store/keyed_hash.h"

#include <array>
#include <bit>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

struct SipKey {
  uint64_t low;
  uint64_t high;
};

void sip_rounds(std::array<uint64_t, 4>& v, int count) {
  for (; count > 0; count--) {
    v[0] += v[1], v[1] = std::rotl(v[1], 13) ^ v[0], v[0] = std::rotl(v[0], 32);
    v[2] += v[3], v[3] = std::rotl(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = std::rotl(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = std::rotl(v[1], 17) ^ v[2], v[2] = std::rotl(v[2], 32);
  }
}

// SipHash-c-d as defined in section 2 of the paper, on a padded copy, byte by byte.
uint64_t sip_hash(int c, int d, SipKey key, std::string text) {
  std::array<uint64_t, 4> v = {key.low ^ 0x736f6d6570736575u, key.high ^ 0x646f72616e646f6du,
                               key.low ^ 0x6c7967656e657261u, key.high ^ 0x7465646279746573u};
  const auto length = static_cast<char>(text.size() & 0xff);
  text.append(7 - text.size() % 8, '\0').push_back(length);
  for (size_t at = 0; at < text.size(); at += 8) {
    uint64_t word = 0;
    for (size_t i = 8; i-- > 0;)
      word = word << 8 | static_cast<unsigned char>(text[at + i]);
    v[3] ^= word;
    sip_rounds(v, c);
    v[0] ^= word;
  }
  v[2] ^= 0xff;
  sip_rounds(v, d);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t expected_hash(uint64_t seed, const std::string& key) {
  return sip_hash(1, 3, {seed, seed * 0x9e3779b97f4a7c15u + 1}, key);
}

// Checks the model above against the paper (appendix A, SipHash-2-4) and the reference
// implementation.
TEST(KeyedHash, TheModelIsSipHash) {
  const SipKey key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  std::string text;
  for (char c = 0; c < 15; c++)
    text += c;
  EXPECT_EQ(sip_hash(2, 4, key, text), 0xa129ca6149be45e5u);
  EXPECT_EQ(sip_hash(1, 3, key, ""), 0xabac0158050fc4dcu);
}

TEST(KeyedHash, IsSipHash13AtEachLengthOfTheTail) {
  std::string text;
  for (int length = 0; length <= 25; length++) {
    EXPECT_EQ(KeyedHash(7)(text), expected_hash(7, text)) << length;
    text += static_cast<char>(0xf0 + length);
  }
  for (const size_t length : {255u, 256u, 257u, 8192u}) {
    const std::string same(length, 'k');
    EXPECT_EQ(KeyedHash(7)(same), expected_hash(7, same)) << length;
  }
}

RC_GTEST_PROP(KeyedHash, IsSipHash13OfAnyKeyAndSeed, (uint64_t seed, const std::string& key)) {
  RC_ASSERT(KeyedHash(seed)(key) == expected_hash(seed, key));
}

TEST(KeyedHash, DependsOnTheSeedTheLengthAndEachByte) {
  const KeyedHash one(1);
  EXPECT_EQ(one("abc"), KeyedHash(1)(std::string("abc")));
  EXPECT_NE(one("abc"), KeyedHash(2)("abc"));
  EXPECT_NE(KeyedHash()("abc"), one("abc"));
  std::set<size_t> hashes;
  std::string zeros;
  for (; zeros.size() < 20; zeros += '\0')
    hashes.insert(one(zeros));
  for (char& c : zeros) {
    c = 1;
    hashes.insert(one(zeros));
    c = 0;
  }
  EXPECT_EQ(hashes.size(), 40u);
}

// A key in the middle of a request may lie at an odd address.
TEST(KeyedHash, HashesAKeyAtAnyAddress) {
  const std::string request = "0123456789/default_pg/0//cpu//0";
  for (size_t at = 0; at < 10; at++) {
    const std::string key = request.substr(at);
    EXPECT_EQ(KeyedHash(3)(std::string_view(request).substr(at)), expected_hash(3, key)) << at;
  }
}

// libstdc++ stores the hash beside the key only if the hasher may throw.
static_assert(!noexcept(std::declval<const KeyedHash&>()(std::string_view())));

}  // namespace
}  // namespace muster
