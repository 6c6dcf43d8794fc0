#include "agent/report/traceback_lines.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/report/finding.h"
#include "agent/report/text.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using After = RaisedException::After;
using Form = TracebackHeader::Form;

bool is_name_byte(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return letter || is_digit(c) || c == '.' || c == '<' || c == '>' ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

bool is_name_start(char c) {
  return is_name_byte(c) && c != '.' && c != '<' && c != '>' && !is_digit(c);
}

bool starts_message(std::string_view line) {
  return starts_with_any(line, {"Exception ignored ", "Error in sys.excepthook", "Error in atexit.",
                                "Exception in thread ", "--- Logging error ---"});
}

// The first line with text, after `skip` others.
std::string_view further_words(const std::vector<std::string>& further, size_t skip = 0) {
  for (const std::string& line : further) {
    const std::string_view words = trimmed(line);
    if (!words.empty() && skip-- == 0) return words;
  }
  return {};
}

// Finds rich's corner in "╭─ Traceback (most recent call last) ─╮", which a narrow terminal cuts.
std::optional<size_t> rich_corner(std::string_view line) {
  const size_t title =
      contains(line, "─ Traceback (") ? line.find("─ Traceback (") : line.find("- Traceback (");
  if (title == std::string_view::npos) return {};
  // Includes the title's first character, the second of the corner "+-" in a narrow box.
  const std::string_view before = line.substr(0, title + 1);
  const size_t corner = std::min(before.rfind("╭"), before.rfind("+-"));
  const std::string_view last = trimmed(line);
  const bool closed = last.ends_with("╮") || last.ends_with("-+");
  return closed && corner != std::string_view::npos ? std::optional(corner) : std::nullopt;
}

// torch's NCCL errors end in "Last error:" and NCCL's own message.
std::string_view last_error_of_nccl(const std::vector<std::string>& further) {
  const auto label = std::ranges::find(further, "Last error:");
  if (label == further.end() || label + 1 == further.end()) return {};
  return trimmed(*(label + 1));
}

// Exceptions for control flow, not errors: a failure while handling one is unrelated to it.
bool is_control_flow(std::string_view type) {
  return is_one_of(
      type.substr(type.rfind('.') + 1),
      {"StopIteration", "StopAsyncIteration", "GeneratorExit", "CancelledError", "Empty", "Full"});
}

size_t root_of(const std::vector<RaisedException>& chain) {
  size_t root = 0;
  while (root + 1 < chain.size() && is_control_flow(chain[root].type))
    ++root;
  return root;
}

std::string with_origin(const RaisedException& last, const char* how,
                        const RaisedException& origin) {
  constexpr size_t kLastMax = 240;
  constexpr size_t kOriginMax = 140;
  // A wrapper that only repeats what it wraps adds nothing.
  if (origin.text.starts_with(last.text)) return origin.text;
  return fmt::format("{} ({} {})", clean_line(last.text, kLastMax), how,
                     clean_line(origin.text, kOriginMax));
}

std::string text_up_to(const std::vector<RaisedException>& chain, size_t root, size_t last) {
  if (last == root) return chain[last].text;
  if (chain[last].after == After::context) {
    return with_origin(chain[last], "while handling", chain[last - 1]);
  }
  size_t origin = last;
  while (origin > root && chain[origin].after == After::cause)
    --origin;
  return with_origin(chain[last], "caused by", chain[origin]);
}

}  // namespace

std::optional<TracebackHeader> find_header(std::string_view line) {
  constexpr std::string_view kTitle = "Traceback (most recent call last)";
  constexpr std::string_view kGroup = "Exception Group ";
  constexpr std::string_view kGroupMargin = "  + ";
  if (const auto corner = rich_corner(line)) {
    return TracebackHeader{Form::rich, line.substr(0, *corner)};
  }
  const size_t at = line.find(kTitle);
  if (at == std::string_view::npos) return {};
  if (trimmed(line.substr(at + kTitle.size())) != ":") return {};
  std::string_view before = line.substr(0, at);
  if (!before.ends_with(kGroup)) return TracebackHeader{Form::plain, before};
  before.remove_suffix(kGroup.size());
  if (before.ends_with(kGroupMargin)) before.remove_suffix(kGroupMargin.size());
  return TracebackHeader{Form::group, before};
}

std::optional<ExceptionLine> parse_exception_line(std::string_view line) {
  if (line.empty() || !is_name_start(line.front())) return {};
  const size_t end =
      static_cast<size_t>(std::ranges::find_if_not(line, is_name_byte) - line.begin());
  const std::string_view behind = line.substr(end);
  if (trimmed(behind).empty()) return ExceptionLine{line.substr(0, end), {}};
  if (!behind.starts_with(':')) return {};
  return ExceptionLine{line.substr(0, end), trimmed(behind.substr(1)), true};
}

RaisedException::After link_of(std::string_view line) {
  if (line.starts_with("The above exception was the direct cause")) return After::cause;
  if (line.starts_with("During handling of the above exception")) return After::context;
  return After::nothing;
}

bool opens_something(const MessageLines& lines, size_t at) {
  const std::string_view line = lines[at].text;
  return opens_log_entry(line) || starts_message(line) || find_header(line) ||
         find_native(lines, at);
}

TracebackLines::TracebackLines(const MessageLines& lines, size_t at, std::string_view prefix)
    : lines_(lines), at_(at) {
  if (at + 1 == lines.size()) return;
  // Text before the header but not before the next line belongs to a log entry or progress bar.
  const std::string_view next = lines[at + 1].text;
  const std::string_view tags = prefix.substr(0, prefix.size() - without_tags(prefix).size());
  for (const std::string_view candidate : {prefix, tags}) {
    if (!behind_prefix(next, candidate)) continue;
    prefix_ = candidate;
    break;
  }
  by_excepthook_ = ends_in_torch_tag(prefix_);
}

std::optional<std::string_view> TracebackLines::body(size_t at) const {
  if (at >= lines_.size()) return {};
  const std::string& line = lines_[at].text;
  if (const auto behind = behind_prefix(line, prefix_)) return behind;
  // torch's hook does not tag blank lines, but another launcher may have.
  const bool blank = trimmed(without_tags(line)).empty();
  return blank ? std::optional(std::string_view()) : std::nullopt;
}

bool TracebackLines::is_blank(size_t at) const {
  const std::optional<std::string_view> line = body(at);
  return line && trimmed(*line).empty();
}

void TracebackLines::skip_blank() {
  while (is_blank(at_))
    next();
}

std::optional<TracebackHeader> TracebackLines::header() const {
  const std::optional<std::string_view> line = body();
  std::optional<TracebackHeader> header = line ? find_header(*line) : std::nullopt;
  return header && header->prefix.empty() ? header : std::nullopt;
}

std::string exception_text(const ExceptionLine& line, const std::vector<std::string>& further) {
  std::string text(line.type);
  if (!line.words.empty()) text += fmt::format(": {}", line.words);
  const std::string_view more = further_words(further);
  if (more.empty()) return text;
  if (contains(line.words, "validation error")) {
    // pydantic: the field, then what is wrong with it.
    text += fmt::format(": {}: {}", more, further_words(further, 1));
  } else if (line.words.ends_with(':') || (line.has_colon && line.words.empty())) {
    text += fmt::format("{} {}", line.words.empty() ? ":" : "", more);
  } else if (contains(line.words, "NCCL error in: ")) {
    const std::string_view last_error = last_error_of_nccl(further);
    if (!last_error.empty()) text += fmt::format("; last error: {}", last_error);
  }
  return text;
}

RaisedException raised_by(const ExceptionLine& line, const std::vector<std::string>& further) {
  std::string words(line.words);
  for (const std::string& more : further)
    words += "\n" + more;
  return {std::string(line.type), exception_text(line, further), blame_of(line.type, words)};
}

RaisedException told_of_chain(const std::vector<RaisedException>& chain) {
  CHECK(!chain.empty());
  const size_t root = root_of(chain);
  RaisedException told = chain.back();
  told.blame = chain[root].blame;
  size_t last = chain.size() - 1;
  if (told.blame) {
    for (const RaisedException& link : chain) {
      if (link.blame) told.blame = merged(*told.blame, *link.blame);
    }
  } else {
    // The program had already failed when the first lost connection was raised.
    const auto begin = chain.begin() + static_cast<std::ptrdiff_t>(root);
    const auto lost =
        std::find_if(begin, chain.end(), [](const RaisedException& link) { return !!link.blame; });
    last = static_cast<size_t>(lost - chain.begin()) - 1;
  }
  told.text = text_up_to(chain, root, last);
  told.type = chain[last].type;
  return told;
}

RaisedException told_of_group(const std::vector<RaisedException>& leaves) {
  constexpr size_t kToldMax = 3;
  CHECK(!leaves.empty());
  RaisedException told = leaves.front();
  for (size_t i = 1; i < leaves.size(); ++i) {
    if (i < kToldMax) told.text += "; " + leaves[i].text;
    told.blame = told.blame && leaves[i].blame
                     ? std::optional(merged(*told.blame, *leaves[i].blame))
                     : std::nullopt;
  }
  if (leaves.size() > kToldMax) told.text += fmt::format("; {} more", leaves.size() - kToldMax);
  return told;
}

}  // namespace muster
