// HMAC-SHA256 (RFC 2104, FIPS 180-4) over a list of parts: proves that a process knows a secret and
// derives keys from one. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace muster {

using Mac = std::array<uint8_t, 32>;

// Each part is preceded by its length (u64, little-endian), so different lists encode differently.
// By convention the first part names the purpose. `key` may have any length, even 0.
Mac mac_of(std::string_view key, std::initializer_list<std::string_view> parts);

// Compares in constant time.
bool same_mac(const Mac& a, const Mac& b);

inline std::string_view raw_bytes(const auto& array) {
  return {reinterpret_cast<const char*>(array.data()), array.size()};
}

}  // namespace muster
