// Bytes as hexadecimal digits, so that a word of a blank-separated text can hold any byte. No bytes
// make an empty text, for which a caller that needs a word must substitute one. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace muster {

inline std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// Returns nullopt for anything but pairs of the digits 0 to 9 and a to f.
inline std::optional<std::string> from_hex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]);
    const size_t low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace muster
