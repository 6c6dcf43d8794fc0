// Selects the lines that contain one of several texts, for the filtered copy of a tee'd stream.
// Matches the raw bytes of a line, case-sensitive; a line longer than 1 MiB in pieces of that size.
// A last line without a newline gets one, since other ranks write to the same file. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

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
