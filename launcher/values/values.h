// Parsers for the values of flags and PET_* variables: lists, choices, and numbers as Python's
// int() and float() read them, on which torchrun's users rely. Also shows a value in a message. A
// problem is a phrase that follows "--flag value: " and ends with the remedy. Pure.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "rendezvous/base/text.h"

namespace muster {

template <typename T>
using Parsed = tl::expected<T, std::string>;

inline tl::unexpected<std::string> problem(std::string phrase) {
  return tl::unexpected<std::string>(std::move(phrase));
}

inline constexpr int kIntMax = std::numeric_limits<int>::max();

// Allows space around the number, a sign, and single underscores between digits, as Python does.
Parsed<int> parse_int(std::string_view text, int min, int max = kIntMax);

// parse_int() as a parser for Settings::read().
inline auto int_from(int min, int max = kIntMax) {
  return [min, max](std::string_view text) { return parse_int(text, min, max); };
}

// Accepts a finite decimal number.
Parsed<double> parse_number(std::string_view text);

// Accepts seconds up to 1e9, and zero only if allowed.
Parsed<double> parse_seconds(std::string_view text, bool zero_allowed);
inline Parsed<double> seconds_above_0(std::string_view text) {
  return parse_seconds(text, false);
}

Parsed<std::string> parse_choice(std::string_view text, std::span<const std::string_view> choices);

// Parses "a, b,,c" as {"a", "b,c"}: trims items, drops empty ones, takes `,,` for a comma.
std::vector<std::string> parse_escaped_list(std::string_view text);

// The number of a signal by its name in Python's signal module, where torchrun looks names up: with
// "SIG"; among real-time signals only SIGRTMIN and SIGRTMAX have names.
std::optional<int> signal_number(std::string_view name);

// The value for a one-line message: control characters escaped, cut after 80 bytes, quoted if it is
// empty or contains a space.
std::string shown(std::string_view value);

struct Nearest {
  std::string_view word;  // Empty if there are no candidates.
  std::size_t distance = 0;
};

// The candidate with the smallest edit distance; a candidate that begins with `word` counts as one
// edit away, since users abbreviate more often than they mistype. The first one wins a tie.
Nearest nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace muster
