#include "agent/report/text.h"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  uint32_t value = 0;
  size_t size = 1;
  bool valid = false;
};

// The smallest value that needs this many bytes; a smaller one is an overlong form.
constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};

size_t sequence_size(unsigned char lead) {
  const int ones = std::countl_one(lead);
  if (ones == 0) return 1;
  return ones >= 2 && ones <= 4 ? static_cast<size_t>(ones) : 0;
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Decodes the code point at `at`. An invalid byte has size 1, so that decoding resumes after it.
CodePoint decode(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t size = sequence_size(lead);
  if (size == 1) return {lead, 1, true};
  if (size == 0 || at + size > text.size()) return {};
  uint32_t value = lead & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if (!is_continuation(text[at + i])) return {};
    value = (value << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[size] || value > 0x10FFFF || surrogate) return {};
  return {value, size, true};
}

// C0 and C1 controls, and the marks that reorder text around them.
bool is_hidden(uint32_t c) {
  if (c == '\t') return false;
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

size_t skip_while_between(std::string_view text, size_t at, char low, char high) {
  while (at < text.size() && text[at] >= low && text[at] <= high)
    ++at;
  return at;
}

// OSC, DCS and the like run until BEL or ESC \; an unterminated one swallows the rest of its line.
size_t skip_control_string(std::string_view text, size_t at) {
  for (; at < text.size(); ++at) {
    if (text[at] == '\a') return at + 1;
    if (text[at] == '\x1b') return at + 1 < text.size() && text[at + 1] == '\\' ? at + 2 : at;
  }
  return at;
}

// The end of the escape sequence (ECMA-48) whose ESC is at `at`.
size_t skip_escape(std::string_view text, size_t at) {
  ++at;
  if (at >= text.size()) return at;
  const char kind = text[at];
  if (kind == '[') {
    at = skip_while_between(text, at + 1, '\x30', '\x3f');
    at = skip_while_between(text, at, '\x20', '\x2f');
    return at < text.size() && text[at] >= '\x40' && text[at] <= '\x7e' ? at + 1 : at;
  }
  if (kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_') {
    return skip_control_string(text, at + 1);
  }
  at = skip_while_between(text, at, '\x20', '\x2f');
  return at < text.size() && text[at] >= '\x30' && text[at] <= '\x7e' ? at + 1 : at;
}

struct Cleaned {
  std::string text;
  size_t characters_cut = 0;
};

Cleaned clean_segment(std::string_view raw, size_t characters_max) {
  Cleaned result;
  size_t characters = 0;
  for (size_t at = 0; at < raw.size();) {
    if (raw[at] == '\x1b') {
      at = skip_escape(raw, at);
      continue;
    }
    const CodePoint point = decode(raw, at);
    if (!point.valid || !is_hidden(point.value)) {
      if (characters++ < characters_max) {
        result.text += point.valid ? raw.substr(at, point.size) : kReplacement;
      } else {
        ++result.characters_cut;
      }
    }
    at += point.size;
  }
  return result;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

std::string with_unit(double value, const char* unit) {
  const bool whole = value >= 100 || value == static_cast<double>(static_cast<int64_t>(value));
  return whole ? fmt::format("{:.0f} {}", value, unit) : fmt::format("{:.1f} {}", value, unit);
}

// Columns on a terminal: the continuation bytes of UTF-8 take none.
size_t shown_width(const std::string& text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, is_continuation));
}

struct CalendarTime {
  std::chrono::year_month_day day;
  std::chrono::hh_mm_ss<std::chrono::milliseconds> time;
};

CalendarTime calendar_time(WallTime time) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(ms);
  return {std::chrono::year_month_day{day}, std::chrono::hh_mm_ss{ms - day}};
}

std::string date_and_time(const CalendarTime& at, char separator) {
  return fmt::format("{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}", static_cast<int>(at.day.year()),
                     static_cast<unsigned>(at.day.month()), static_cast<unsigned>(at.day.day()),
                     separator, at.time.hours().count(), at.time.minutes().count(),
                     at.time.seconds().count());
}

}  // namespace

std::string clean_line(std::string_view raw, size_t characters_max) {
  Cleaned shown;
  // Take a progress bar's last state that is not blank.
  while (true) {
    const size_t begin = raw.rfind('\r');
    const size_t from = begin == std::string_view::npos ? 0 : begin + 1;
    shown = clean_segment(raw.substr(from), characters_max);
    if (from == 0 || !is_blank(shown.text)) break;
    raw = raw.substr(0, begin);
  }
  if (shown.characters_cut > 0) {
    shown.text += fmt::format(" ... ({} more characters)", shown.characters_cut);
  }
  return shown.text;
}

std::string clean_message(std::string_view raw) {
  std::string text;
  for (const std::string_view line : split(raw, '\n'))
    text.append(clean_line(line, 8192)).append(1, '\n');
  text.pop_back();
  return text;
}

std::vector<std::string> last_lines(std::string_view raw, size_t lines_max, size_t characters_max) {
  std::vector<std::string> lines;
  while (!raw.empty() && lines.size() < lines_max) {
    if (raw.back() == '\n') raw.remove_suffix(1);
    const size_t newline = raw.rfind('\n');
    const size_t from = newline == std::string_view::npos ? 0 : newline + 1;
    std::string line = clean_line(raw.substr(from), characters_max);
    raw = raw.substr(0, from);
    if (lines.empty() && is_blank(line)) continue;
    lines.push_back(std::move(line));
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

std::string valid_utf8(std::string_view raw) {
  std::string text;
  for (size_t at = 0; at < raw.size();) {
    const CodePoint point = decode(raw, at);
    text += point.valid ? raw.substr(at, point.size) : kReplacement;
    at += point.size;
  }
  return text;
}

std::string_view utf8_suffix(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t from = text.size() - bytes_max;
  while (from < text.size() && is_continuation(text[from]))
    ++from;
  return text.substr(from);
}

std::vector<std::pair<int, int>> ranges_of(const std::vector<int>& ranks) {
  std::vector<std::pair<int, int>> ranges;
  for (const int rank : ranks) {
    const bool goes_on =
        !ranges.empty() && is_one_of(rank, {ranges.back().second, ranges.back().second + 1});
    if (!goes_on) ranges.emplace_back(rank, rank);
    ranges.back().second = rank;
  }
  return ranges;
}

std::string rank_ranges(const std::vector<int>& ranks, size_t ranges_max) {
  std::string text;
  size_t left = ranks.size();
  for (const auto& [first, last] : ranges_of(ranks)) {
    if (ranges_max-- == 0) return text + fmt::format(",... ({} more)", left);
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    left -= static_cast<size_t>(last - first) + 1;
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks);
}

std::string group_title(std::string_view name, std::string_view ranks) {
  if (name.starts_with("group ")) return std::string(name);
  const bool has_many = ranks.find_first_of(",-") != std::string_view::npos;
  return fmt::format("group '{}'{}{}", name,
                     ranks.empty() ? ""
                     : has_many    ? " of ranks "
                                   : " of rank ",
                     ranks);
}

std::string node_text(std::string_view host, int node_rank) {
  const std::string name = clean_line(host);
  return node_rank < 0 ? name : fmt::format("{} (node rank {})", name, node_rank);
}

std::string duration_text(Duration duration) {
  using namespace std::chrono;
  const int64_t ms = std::max<int64_t>(0, duration_cast<milliseconds>(duration).count());
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 60'000) return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
  const int64_t s = ms / 1000;
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 86'400) return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
  return fmt::format("{} d {} h", s / 86'400, s % 86'400 / 3600);
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return with_unit(value, kUnits[unit]);
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], shown_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] - shown_width(row[i]) + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string wall_time_text(WallTime time, std::chrono::seconds utc_offset) {
  return date_and_time(calendar_time(time + utc_offset), '_');
}

std::string wall_time_iso(WallTime time) {
  const CalendarTime at = calendar_time(time);
  return date_and_time(at, 'T') + fmt::format(".{:03}Z", at.time.subseconds().count());
}

}  // namespace muster
