// Proofs that a process knows a secret, and keys that are derived from one: HMAC-SHA256 (RFC 2104,
// FIPS 180-4) over a list of parts. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace muster {

using Mac = std::array<uint8_t, 32>;

// Each part is preceded by its length (u64, little-endian), so different lists never encode alike.
// By custom the first one says what the result is for. `key`: of any length, also empty.
Mac mac_of(std::string_view key, std::initializer_list<std::string_view> parts);

// Compares in a time that does not depend on where they differ.
bool same_mac(const Mac& a, const Mac& b);

inline std::string_view raw_bytes(const auto& array) {
  return {reinterpret_cast<const char*>(array.data()), array.size()};
}

}  // namespace muster
