#include "launcher/values/values.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>

#include <fmt/format.h>

#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

constexpr double kSecondsMax = 1e9;
constexpr std::size_t kShownMax = 80;

std::string range_words(int min, int max) {
  return max == kIntMax ? fmt::format("{} or more", min) : fmt::format("{} to {}", min, max);
}

// The digits without single underscores between them; empty if `text` is not a number.
std::string digits_of(std::string_view text) {
  std::string digits;
  bool digit_before = false;
  for (const char c : text) {
    if (is_digit(c)) {
      digits += c;
      digit_before = true;
    } else if (c == '_' && digit_before) {
      digit_before = false;
    } else {
      return {};
    }
  }
  return digit_before ? digits : std::string{};
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

Parsed<int> parse_int(std::string_view text, int min, int max) {
  std::string_view body = trim(text);
  const bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  const std::string digits = digits_of(body);
  if (digits.empty()) {
    return problem(fmt::format("not a whole number; give {}", range_words(min, max)));
  }
  int64_t value = whole_number<int64_t>(digits).value_or(std::numeric_limits<int64_t>::max());
  if (negative) value = -value;
  if (value < min || value > max) {
    return problem(fmt::format("out of range; give {}", value > max
                                                            ? fmt::format("{} to {}", min, max)
                                                            : range_words(min, max)));
  }
  return static_cast<int>(value);
}

Parsed<double> parse_number(std::string_view text) {
  std::string_view body = trim(text);
  if (body.starts_with('+')) body.remove_prefix(1);
  const std::optional<double> value = whole_number<double>(body);
  if (!value || !std::isfinite(*value)) return problem("not a number");
  return *value;
}

Parsed<double> parse_seconds(std::string_view text, bool zero_allowed) {
  const std::string remedy = zero_allowed ? "give seconds, 0 or more" : "give seconds, more than 0";
  const Parsed<double> value = parse_number(text);
  if (!value) return problem("not a number; " + remedy);
  if (*value < 0 || (*value == 0 && !zero_allowed)) return problem("out of range; " + remedy);
  if (*value > kSecondsMax) return problem("out of range; give at most 1000000000 seconds");
  return value;
}

Parsed<std::string> parse_choice(std::string_view text, std::span<const std::string_view> choices) {
  if (std::ranges::count(choices, text) > 0) return std::string(text);
  return problem(fmt::format("unknown; give one of {}", fmt::join(choices, ", ")));
}

std::vector<std::string> parse_escaped_list(std::string_view text) {
  std::vector<std::string> items;
  std::string item;
  const auto finish = [&] {
    if (const std::string_view trimmed = trim(item); !trimmed.empty()) items.emplace_back(trimmed);
    item.clear();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      item += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      item += ',';
      ++i;
    } else {
      finish();
    }
  }
  finish();
  return items;
}

std::string shown(std::string_view value) {
  std::string text;
  for (const char c : value.substr(0, kShownMax)) {
    if (c == '\n') {
      text += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      text += c;
    }
  }
  if (value.size() > kShownMax) text += "...";
  if (text.empty() || text.find(' ') != std::string::npos) return "'" + text + "'";
  return text;
}

Nearest nearest(std::string_view word, std::span<const std::string_view> candidates) {
  Nearest best;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance =
        word.size() > 1 && candidate.starts_with(word) ? 1 : edit_distance(word, candidate);
    if (best.word.empty() || distance < best.distance) best = {candidate, distance};
  }
  return best;
}

std::optional<int> signal_number(std::string_view name) {
  if (name == "SIGIOT") return SIGABRT;
  if (name == "SIGCLD") return SIGCHLD;
  if (name == "SIGPOLL") return SIGIO;
  if (name == "SIGRTMAX") return SIGRTMAX;
  if (!name.starts_with("SIG")) return std::nullopt;  // signal_name(32) is "signal 32".
  for (int number = 1; number <= SIGRTMIN; ++number) {
    if (signal_name(number) == name) return number;
  }
  return std::nullopt;
}

}  // namespace muster
