#include "agent/report/message_lines.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

bool is_digit_at(std::string_view text, size_t at) {
  return at < text.size() && is_digit(text[at]);
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The size of a tag at the front, including its colon and torch's space; 0: there is none.
size_t tag_size(std::string_view line) {
  constexpr size_t kTagMax = 64;
  if (!line.starts_with('[')) return 0;
  const size_t close = line.substr(0, kTagMax).find(']');
  if (close == std::string_view::npos || close < 2 || !is_digit(line[close - 1])) return 0;
  size_t end = close + 1;
  bool of_launcher = is_letter(line[1]);
  for (const std::string_view stream : {"<stderr>", "<stdout>"}) {
    if (!line.substr(end).starts_with(stream)) continue;
    end += stream.size();
    of_launcher = true;
    break;
  }
  if (!of_launcher || !line.substr(end).starts_with(':')) return 0;
  ++end;
  return line.starts_with("[rank") && line.substr(end).starts_with(' ') ? end + 1 : end;
}

bool is_glog_level(char c) {
  return c == 'I' || c == 'W' || c == 'E' || c == 'F';
}

// "W1122 10:00:00", the start of a glog line.
bool opens_glog_line(std::string_view text) {
  if (text.size() < 3 || !is_glog_level(text[0])) return false;
  return is_digit(text[1]) && is_digit(text[2]) && is_digit_at(text, 3);
}

constexpr std::string_view kTracebackTitle = "Traceback (most recent call last):";

// Python's text of structlog's dict_tracebacks, which are objects with these keys.
std::string told_by_structlog(const wire::Json& exception) {
  std::string text = fmt::format("{}\n", kTracebackTitle);
  for (const wire::Json& frame : wire::list_at(exception, "frames")) {
    if (!frame.is_object()) continue;
    text += fmt::format("  File \"{}\", line {}, in {}\n", wire::text_at(frame, "filename"),
                        wire::number_at(frame, "lineno"), wire::text_at(frame, "name"));
  }
  return text + fmt::format("{}: {}\n", wire::text_at(exception, "exc_type"),
                            wire::text_at(exception, "exc_value"));
}

// The first text below `value` that holds a traceback; empty: none does.
std::string traceback_in(const wire::Json& value, int depth = 4) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return contains(text, kTracebackTitle) ? text : std::string();
  }
  if (!wire::text_at(value, "exc_type").empty()) return told_by_structlog(value);
  std::string found;
  if (value.is_structured() && depth > 0) {
    for (auto part = value.begin(); part != value.end() && found.empty(); ++part)
      found = traceback_in(*part, depth - 1);
  }
  return found;
}

// The lines of a log entry of JSON that holds a traceback: structlog, loguru and others write the
// whole entry as one line. Empty: it is none.
std::vector<std::string> lines_in_json(std::string_view line) {
  if (!line.starts_with('{') ||
      (!contains(line, kTracebackTitle) && !contains(line, "\"exc_type\"")))
    return {};
  const auto entry = wire::Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string traceback = entry.is_object() ? traceback_in(entry) : std::string();
  if (traceback.empty()) return {};
  std::vector<std::string> lines;
  for (const char* const key : {"event", "message", "msg"}) {
    if (std::string words = wire::text_at(entry, key); !words.empty() && words != traceback)
      lines.push_back(std::move(words));
  }
  for (const std::string_view one : split(traceback, '\n'))
    lines.emplace_back(one);
  return lines;
}

}  // namespace

MessageLines::MessageLines(std::string_view raw) {
  for (size_t begin = 0; begin < raw.size();) {
    const size_t newline = raw.find('\n', begin);
    const size_t end = newline == std::string_view::npos ? raw.size() : newline + 1;
    const size_t size = (newline == std::string_view::npos ? end : newline) - begin;
    const std::string_view line = raw.substr(begin, size);
    for (const std::string& inner : lines_in_json(line))
      lines_.push_back({clean_line(inner, std::numeric_limits<size_t>::max()), begin, end});
    if (lines_.empty() || lines_.back().begin != begin)
      lines_.push_back({clean_line(line, std::numeric_limits<size_t>::max()), begin, end});
    begin = end;
  }
}

std::optional<std::string_view> behind_prefix(std::string_view line, std::string_view prefix) {
  const size_t common = std::min(line.size(), prefix.size());
  for (size_t i = 0; i < common; ++i) {
    const bool same = line[i] == prefix[i] || (is_digit(line[i]) && is_digit(prefix[i]));
    if (!same) return {};
  }
  if (line.size() >= prefix.size()) return line.substr(prefix.size());
  const bool only_spaces_miss = prefix.find_first_not_of(' ', common) == std::string_view::npos;
  return only_spaces_miss ? std::optional(std::string_view()) : std::nullopt;
}

std::string_view without_tags(std::string_view line) {
  for (size_t size = tag_size(line); size > 0; size = tag_size(line))
    line.remove_prefix(size);
  return line;
}

bool ends_in_torch_tag(std::string_view prefix) {
  constexpr std::string_view kOpen = "[rank";
  const size_t at = prefix.rfind(kOpen);
  if (at == std::string_view::npos || !prefix.ends_with("]: ")) return false;
  const std::string_view number = prefix.substr(at + kOpen.size(), prefix.size() - at - 8);
  return !number.empty() && std::ranges::all_of(number, is_digit);
}

bool opens_log_entry(std::string_view line) {
  line = without_tags(line);
  if (line.starts_with("{\"")) return true;
  const std::string_view inner = line.starts_with('[') ? line.substr(1) : line;
  const bool old_torch = line.size() > 3 && line[0] == '[' && line[2] == ' ' && is_letter(line[3]);
  if (opens_glog_line(inner) || (old_torch && is_glog_level(line[1]))) return true;
  if (line.starts_with('[')) line.remove_prefix(1);
  constexpr std::array<std::string_view, 6> kLevels = {"DEBUG", "INFO",     "WARNING",
                                                       "ERROR", "CRITICAL", "WARN"};
  for (const std::string_view level : kLevels) {
    if (!line.starts_with(level)) continue;
    const std::string_view rest = line.substr(level.size());
    return rest.empty() || rest[0] == ':' || rest[0] == ' ' || rest[0] == ']';
  }
  // "2026-11-20", "11/20/26", "22:56:48".
  size_t digits = 0;
  while (is_digit_at(line, digits))
    ++digits;
  if (digits != 2 && digits != 4) return false;
  const std::string_view rest = line.substr(digits);
  if (rest.size() < 4 || (rest[0] != '-' && rest[0] != '/' && rest[0] != ':')) return false;
  return is_digit(rest[1]) && is_digit(rest[2]) && rest[3] == rest[0];
}

std::string_view trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t") + 1 - from);
}

size_t columns(std::string_view utf8) {
  return static_cast<size_t>(std::ranges::count_if(
      utf8, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

}  // namespace muster
