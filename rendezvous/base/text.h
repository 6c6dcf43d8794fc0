// Helpers for text from the wire, from files and from command lines: ASCII only, regardless of the
// locale. Pure; any thread.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace muster {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr bool starts_with_any(std::string_view text,
                               std::initializer_list<std::string_view> beginnings) {
  for (const std::string_view beginning : beginnings) {
    if (text.starts_with(beginning)) return true;
  }
  return false;
}

template <typename T>
constexpr bool is_one_of(const T& value, std::initializer_list<std::type_identity_t<T>> list) {
  for (const T& one : list) {
    if (value == one) return true;
  }
  return false;
}

// Returns what follows the first `phrase`; nullopt if there is none.
constexpr std::optional<std::string_view> text_after(std::string_view text,
                                                     std::string_view phrase) {
  const size_t at = text.find(phrase);
  return at == text.npos ? std::nullopt : std::optional(text.substr(at + phrase.size()));
}

// 64-bit FNV-1a (Fowler, Noll, Vo): the same in every build of muster.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : bytes)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Strips white space from both ends.
inline std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Returns at least one item: an empty text has one empty item.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> items;
  for (;;) {
    const size_t at = text.find(separator);
    items.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return items;
    text.remove_prefix(at + 1);
  }
}

// Parses the whole text as std::from_chars() does: no blanks and no '+'.
template <typename Number, std::same_as<int>... Base>
std::optional<Number> whole_number(std::string_view text, Base... base) {
  Number number{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, base...);
  return error == std::errc() && end == last ? std::optional(number) : std::nullopt;
}

// Takes a number off the front; nullopt if there is none or it does not fit.
template <std::integral T>
std::optional<T> take_number(std::string_view& text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// Returns the last non-empty line without its newline; "" if there is none.
inline std::string_view last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0.
}

// "1 rank", "2 ranks", "0 processes".
inline std::string counted(std::integral auto count, std::string_view one) {
  std::string text = std::to_string(count) + " ";
  text += one;
  return count == 1 ? text : text + (one.ends_with('s') ? "es" : "s");
}

// "a", "a and b", "a, b and c"; beyond `most` names "a, b and 3 others". REQUIRES: most > 0.
template <typename Name>
std::string listed(const std::vector<Name>& names, size_t most = SIZE_MAX) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return names.size() > most ? text + " and " + counted(names.size() - most, "other") : text;
}

// Cuts valid UTF-8 to at most `bytes_max` bytes, at a character boundary.
constexpr std::string_view utf8_prefix(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xC0) == 0x80)
    --bytes_max;
  return text.substr(0, bytes_max);
}

// Returns the first `bytes_max` bytes, with `other` in place of all but printable ASCII.
inline std::string printable(std::string_view text, size_t bytes_max, char other = '?') {
  std::string out(text.substr(0, bytes_max));
  std::ranges::replace_if(out, [](char c) { return c < 0x20 || c > 0x7e; }, other);
  return out;
}

}  // namespace muster
