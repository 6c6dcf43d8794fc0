// The text that precedes each line on the console, and its insertion. Pure.
//
// A prefix is written once per line, before the line's first byte. Only '\n' ends a line: a '\r' of
// a progress bar does not, and every byte of the worker passes unchanged.
#pragma once

#include <string>
#include <string_view>

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

// --log-prefix: {time}, {host}, {rank}, {local_rank} and {role}; other braces stay as they are. The
// fixed values are substituted once, the time at each use, as the caller gives it.
class LogPrefix {
 public:
  LogPrefix() = default;
  LogPrefix(std::string_view text, const PrefixFacts& facts);

  bool needs_time() const { return text_.find(kTime) != std::string::npos; }
  std::string at(std::string_view time) const;  // Ends in one blank.

 private:
  static constexpr std::string_view kTime = "{time}";
  std::string text_;
};

class LinePrefixer {
 public:
  // Appends `bytes` to `out` with `prefix` before each line that starts in them.
  void apply(std::string_view prefix, std::string_view bytes, std::string& out);

 private:
  bool at_start_ = true;
};

}  // namespace muster
