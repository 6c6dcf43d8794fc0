// A stderr's tail for the finders of error messages: lines without colours and control characters,
// each with its byte range, and the prefixes that loggers and launchers put before each line of a
// message ("[rank1]: ", "[default0]:", "2026-11-20 22:56:48,123 ERROR "). Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct MessageLine {
  std::string text;
  size_t begin = 0, end = 0;  // Its bytes, including the newline.

  bool is_blank() const { return text.find_first_not_of(" \t") == std::string::npos; }
};

// Counts reads of lines, so that a test can check that the finders' work grows no faster than the
// number of lines, whatever the bytes are.
class MessageLines {
 public:
  explicit MessageLines(std::string_view raw);

  size_t size() const { return lines_.size(); }
  const MessageLine& operator[](size_t at) const {
    ++looks_;
    return lines_[at];
  }
  size_t looks() const { return looks_; }

 private:
  std::vector<MessageLine> lines_;
  mutable size_t looks_ = 0;
};

// Returns the text after a prefix of the same shape: any digit matches a digit, since times and
// process ids change from line to line. Empty if the line ends within the spaces at the prefix's
// end. nullopt: the line begins differently.
std::optional<std::string_view> behind_prefix(std::string_view line, std::string_view prefix);

// The text after the tags that launchers put before lines: "[rank1]: ", "[1,0]<stderr>:".
std::string_view without_tags(std::string_view line);

// True if the last of these tags is "[rank1]: ", which torch's excepthook writes.
bool ends_in_torch_tag(std::string_view prefix);

// True if the line opens a log entry: "[W1122 10:00:00.123 file.cc:1] ", "INFO:root:",
// "2026-11-20 22:56:48", "WARNING ".
bool opens_log_entry(std::string_view line);

std::string_view trimmed(std::string_view text);

// Columns on a terminal, with one for every character.
size_t columns(std::string_view utf8);

}  // namespace muster
