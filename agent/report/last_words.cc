#include "agent/report/last_words.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "agent/report/text.h"

namespace muster {
namespace {

using Lines = std::vector<std::string>;

// Inside an exception group Python draws a margin of spaces, '|' and '+'.
std::string_view without_group_margin(std::string_view line) {
  const size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos || (line[first] != '|' && line[first] != '+')) return line;
  line.remove_prefix(first + 1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

bool is_exception_line(std::string_view line) {
  return !line.empty() && line.front() != ' ' && line.front() != '\t' && line.front() != '-';
}

// "Traceback (most recent call last):", indented frames, then the exception in the first column.
std::optional<std::string> from_python_traceback(const Lines& lines, size_t at) {
  if (lines[at].find("Traceback (most recent call last):") == std::string::npos) return {};
  for (size_t i = at + 1; i < lines.size(); ++i) {
    const std::string_view line = without_group_margin(lines[i]);
    if (is_exception_line(line)) return std::string(line);
  }
  return {};
}

// A script that does not parse has no traceback header: "  File ..., line 3", then "SyntaxError:
// ...".
std::optional<std::string> from_python_syntax_error(const Lines& lines, size_t at) {
  constexpr std::array<std::string_view, 3> kNames = {
      "SyntaxError: ", "IndentationError: ", "TabError: "};
  for (const std::string_view name : kNames) {
    if (lines[at].starts_with(name)) return lines[at];
  }
  return {};
}

// "terminate called after throwing an instance of 'X'", then "  what():  text" (libstdc++).
std::optional<std::string> from_cpp_terminate(const Lines& lines, size_t at) {
  constexpr std::string_view kThrown = "terminate called after throwing an instance of '";
  const size_t begin = lines[at].find(kThrown);
  if (begin == std::string::npos) {
    const bool bare = lines[at].find("terminate called without an active exception") == 0;
    return bare ? std::optional(lines[at]) : std::nullopt;
  }
  std::string type = lines[at].substr(begin + kThrown.size());
  type.resize(std::min(type.size(), type.rfind('\'')));
  constexpr std::string_view kWhat = "  what():  ";
  if (at + 1 < lines.size() && lines[at + 1].starts_with(kWhat)) {
    return type + ": " + lines[at + 1].substr(kWhat.size());
  }
  return type;
}

// "thread 'main' panicked at src/main.rs:2:5:", then the message (in one line before Rust 1.73).
std::optional<std::string> from_rust_panic(const Lines& lines, size_t at) {
  if (!lines[at].starts_with("thread '") || lines[at].find("' panicked at ") == std::string::npos) {
    return {};
  }
  if (!lines[at].ends_with(':') || at + 1 == lines.size()) return lines[at];
  return lines[at] + ' ' + lines[at + 1];
}

// One line says it all: Java, Go, glibc's assert, the sanitizers, Python's interpreter itself.
std::optional<std::string> from_single_line(const Lines& lines, size_t at) {
  const std::string_view line = lines[at];
  const bool go = line.starts_with("panic: ") || line.starts_with("fatal error: ");
  const bool assertion =
      line.find(": Assertion `") != std::string_view::npos && line.ends_with("' failed.");
  const bool sanitizer =
      line.starts_with("==") && line.find("Sanitizer: ") != std::string_view::npos;
  const bool interpreter = line.starts_with("Fatal Python error: ");
  const bool java = line.starts_with("Exception in thread ");
  return java || go || assertion || sanitizer || interpreter ? std::optional(lines[at])
                                                             : std::nullopt;
}

}  // namespace

std::string last_words(std::string_view stderr_tail) {
  // More lines than any tail of 64 KiB with sensible lines has; each finder looks forward from one.
  const Lines lines = last_lines(stderr_tail, 4096);
  constexpr std::array kFinders = {from_python_traceback, from_python_syntax_error,
                                   from_cpp_terminate, from_rust_panic, from_single_line};
  for (size_t at = lines.size(); at-- > 0;) {
    for (const auto finder : kFinders) {
      if (std::optional<std::string> words = finder(lines, at)) return *words;
    }
  }
  return {};
}

}  // namespace muster
