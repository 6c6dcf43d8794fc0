// The elements of flags and PET_* variables: numbers as Python's int() and float() read them, on
// which torchrun's users rely, lists, choices, and how a value is shown in a message. A problem is
// a phrase that follows "--flag value: " and ends with the remedy. Pure.
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

// Space around the number, a sign and single underscores between digits are allowed, as in Python.
Parsed<int> parse_int(std::string_view text, int min, int max = kIntMax);

// The same as a parser of its own, for Settings::read().
inline auto int_from(int min, int max = kIntMax) {
  return [min, max](std::string_view text) { return parse_int(text, min, max); };
}

// A finite decimal number.
Parsed<double> parse_number(std::string_view text);

// Seconds, up to a thousand million; zero only if allowed.
Parsed<double> parse_seconds(std::string_view text, bool zero_allowed);

// One of `choices`, exactly.
Parsed<std::string> parse_choice(std::string_view text, std::span<const std::string_view> choices);

// "a, b,,c" is {"a", "b,c"}: items are trimmed, empty ones dropped, `,,` is a comma within an item.
std::vector<std::string> parse_escaped_list(std::string_view text);

// A signal by a name of Python's signal module, in which torchrun looks them up and which existing
// scripts therefore use: SIGTERM's number for "SIGTERM". Of the real-time signals only SIGRTMIN and
// SIGRTMAX have names. nullopt for a name without SIG or one that this system lacks.
std::optional<int> signal_number(std::string_view name);

// The value for a one-line message: control characters escaped, cut after 80 bytes, in quotes if it
// is empty or contains a space.
std::string shown(std::string_view value);

struct Nearest {
  std::string_view word;  // Empty if there are no candidates.
  std::size_t distance = 0;
};

// The candidate with the smallest edit distance; a candidate that begins with `word` counts as one
// edit away, since users abbreviate more often than they mistype. The first one wins a tie.
Nearest nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace muster
