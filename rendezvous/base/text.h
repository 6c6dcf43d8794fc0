// Small predicates on text that every folder needs. ASCII only, regardless of the locale: the text
// comes from the wire, from files and from command lines.
#pragma once

#include <string_view>

namespace muster {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace muster
