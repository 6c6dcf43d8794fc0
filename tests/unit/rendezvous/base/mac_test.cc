#include "rendezvous/base/mac.h"

#include <string>

#include <gtest/gtest.h>

#include "rendezvous/base/hex.h"

namespace muster {
namespace {

std::string hex_of(const Mac& mac) {
  return to_hex(raw_bytes(mac));
}

// Computed with Python: hmac.new(key, parts, "sha256"), each part after its length in 8 bytes.
TEST(Mac, IsHmacSha256) {
  EXPECT_EQ(hex_of(mac_of("key", {})),
            "5d5d139563c95b5967b9bd9a8c9b233a9dedb45072794cd232dc1b74832607d0");
  EXPECT_EQ(hex_of(mac_of("", {"a", ""})),
            "569219fbcfdfdd0b59549d8c5d96425f4827770430631fa643d426a483e7b47c");
  EXPECT_EQ(hex_of(mac_of(std::string(200, 'k'), {"what", std::string(1000, 'x')})),
            "4d4d3728281a721f896884d90be7fad4c0e642411fae131d836043bdf0091e05");
}

TEST(Mac, DiffersForDifferentListsOfParts) {
  EXPECT_NE(mac_of("k", {"ab", "c"}), mac_of("k", {"a", "bc"}));
  EXPECT_NE(mac_of("k", {"ab"}), mac_of("k", {"ab", ""}));
}

TEST(Mac, IsEqualOnlyIfEveryByteIs) {
  const Mac mac = mac_of("key", {"part"});
  EXPECT_TRUE(same_mac(mac, mac_of("key", {"part"})));
  for (size_t i = 0; i < mac.size(); ++i) {
    Mac other = mac;
    other[i] ^= 0x80;
    EXPECT_FALSE(same_mac(mac, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace muster
