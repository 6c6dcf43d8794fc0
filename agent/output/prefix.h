// The text that precedes each line on the console, and its insertion. Pure.
//
// A prefix is written once per line, before the line's first byte. Only '\n' ends a line: a '\r' of
// a progress bar does not, and every byte of the worker passes unchanged.
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

// The prefix of a tee'd line: the template in the syntax of Python's string.Template ($name,
// ${name}, $$; unknown names stay as they are) with role_name, local_rank, rank and hostname; an
// empty template gives "[<role><local rank>]:".
std::string tee_prefix(std::string_view text, const PrefixFacts& facts);

// --log-prefix: its fields (fields.h) are filled in, a blank is added; {time} becomes a placeholder
// for with_time(), which fills it in at each use. A text with other fields stays as it is.
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

}  // namespace muster
