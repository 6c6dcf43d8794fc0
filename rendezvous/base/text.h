// Small functions on text that every folder needs. ASCII only, regardless of the locale: the text
// comes from the wire, from files and from command lines.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace muster {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The first `bytes_max` bytes, with `other` in place of all but printable ASCII.
inline std::string printable(std::string_view text, size_t bytes_max, char other = '?') {
  std::string out(text.substr(0, bytes_max));
  std::ranges::replace_if(out, [](char c) { return c < 0x20 || c > 0x7e; }, other);
  return out;
}

}  // namespace muster
