// The text that precedes each console line, its insertion before a line's first byte, and the
// choice of lines. Only '\n' ends a line, not a progress bar's '\r', and every byte of the worker
// passes unchanged. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/output/fields.h"

namespace muster {

struct PrefixFacts {
  std::string role;
  std::string hostname;
  int rank = 0;
  int local_rank = 0;
};

// Expands the template of a tee'd line's prefix with role_name, local_rank, rank and hostname
// (fill_template()); an empty one gives "[<role><local rank>]:".
std::string tee_prefix(std::string_view text, const PrefixFacts& facts);

// Expands the fields (fields.h) of --log-prefix and adds a blank; {time} becomes a placeholder that
// with_time() fills in at each use. A text with other fields stays as it is.
inline constexpr std::string_view kTimePlaceholder = "\x1ftime\x1f";
std::vector<Field> log_prefix_fields(const PrefixFacts& facts);
std::string log_prefix(std::string_view text, const PrefixFacts& facts);
std::string with_time(std::string prefix, std::string_view time);

class LinePrefixer {
 public:
  // Appends `bytes` to `out` with `prefix` before each line that starts in them.
  void apply(std::string_view prefix, std::string_view bytes, std::string& out);

 private:
  bool at_start_ = true;
};

// Selects the lines that contain one of several texts, for the filtered copy of a tee'd stream.
// Matches the raw bytes of a line, case-sensitive; a line longer than 1 MiB in pieces of that size.
// A last line without a newline gets one, since other ranks write to the same file.
class LineFilter {
 public:
  static constexpr size_t kLineMax = size_t{1} << 20;

  explicit LineFilter(std::vector<std::string> needles) : needles_(std::move(needles)) {}

  // Appends the matching lines that end in `bytes`, each preceded by `prefix`.
  void feed(std::string_view prefix, std::string_view bytes, std::string& out);
  void finish(std::string_view prefix, std::string& out);

 private:
  void judge(std::string_view prefix, std::string_view line, std::string& out) const;

  std::vector<std::string> needles_;
  std::string partial_;
};

}  // namespace muster
