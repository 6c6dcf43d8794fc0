#include <algorithm>

#include "agent/report/traceback_lines.h"

namespace muster {
namespace {

bool is_box_end(std::string_view line) {
  return line.starts_with("╰") || line.starts_with("+-");
}

bool is_box_start(std::string_view line) {
  return line.starts_with("╭") || line.starts_with("+-");
}

// Returns the text between the box's two edges; nullopt: the line is not within a box.
std::optional<std::string_view> inside(std::string_view line) {
  constexpr std::string_view kEdge = "│";
  const bool drawn = line.starts_with(kEdge);
  if (!drawn && !line.starts_with('|')) return {};
  line.remove_prefix(drawn ? kEdge.size() : 1);
  const size_t right = drawn ? line.rfind(kEdge) : line.rfind('|');
  return trimmed(line.substr(0, right));
}

// Moves from the upper edge past the lower one. False if that is missing.
bool skip_box(TracebackLines& lines) {
  lines.next();
  while (lines.body() && inside(*lines.body()))
    lines.next();
  if (!lines.body() || !is_box_end(*lines.body())) return false;
  lines.next();
  return true;
}

// Undoes rich's line breaks, before a word that does not fit and within a word that is wider than a
// line. The box is as wide as the terminal, up to 100 columns; on a wider terminal a space before
// the break shows it.
std::string unbroken(TracebackLines& lines, size_t box_width) {
  constexpr size_t kBoxMax = 100;
  std::string text;
  std::string_view before;
  for (; lines.body() && !trimmed(*lines.body()).empty(); lines.next()) {
    const std::string_view line = *lines.body();
    const std::string_view words = trimmed(line);
    if (!before.empty()) {
      const std::string_view said = trimmed(before);
      const size_t first_word = columns(words.substr(0, words.find(' ')));
      const bool is_full = columns(said) == box_width && said.find(' ') == std::string_view::npos;
      const bool is_broken =
          box_width < kBoxMax ? columns(said) + 1 + first_word > box_width : before.ends_with(' ');
      if (!is_full && !is_broken) break;
      if (!is_full) text += ' ';
    }
    text += words;
    before = line;
  }
  return text;
}

// Each "Sub-exception #1" is in a box, with its traceback in a box inside it.
std::vector<RaisedException> read_sub_exceptions(TracebackLines& lines) {
  std::vector<RaisedException> leaves;
  while (true) {
    lines.skip_blank();
    const auto title = lines.body();
    if (!title || !is_box_start(*title) || title->find(" Sub-exception #") == title->npos) break;
    std::optional<RaisedException> leaf;
    for (lines.next(); lines.body(); lines.next()) {
      const std::optional<std::string_view> content = inside(*lines.body());
      if (!content) break;
      if (const auto line = parse_exception_line(*content)) leaf = raised_by(*line);
    }
    if (lines.body() && is_box_end(*lines.body())) lines.next();
    if (leaf) leaves.push_back(std::move(*leaf));
  }
  return leaves;
}

}  // namespace

std::optional<RaisedException> read_rich_block(TracebackLines& lines) {
  const size_t width = columns(trimmed(*lines.body()));
  if (!skip_box(lines)) return {};
  // A syntax error shows the wrong line in a box without a title.
  while (lines.body() && is_box_start(*lines.body()) && !find_header(*lines.body())) {
    if (!skip_box(lines)) return {};
  }
  if (!lines.body() || !parse_exception_line(*lines.body())) return {};
  const std::string text = unbroken(lines, width);
  const std::optional<ExceptionLine> line = parse_exception_line(text);
  if (!line) return {};
  RaisedException raised = raised_by(*line);
  if (!raised.type.ends_with("ExceptionGroup")) return raised;
  const std::vector<RaisedException> leaves = read_sub_exceptions(lines);
  return leaves.empty() ? raised : told_of_group(leaves);
}

}  // namespace muster
