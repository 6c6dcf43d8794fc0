#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/report/finding.h"
#include "agent/report/traceback_lines.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using After = RaisedException::After;
using Form = TracebackHeader::Form;

// Python draws a margin of spaces, '|' and '+' inside an exception group.
std::optional<std::string_view> behind_margin(std::string_view line) {
  const size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos || (line[first] != '|' && line[first] != '+')) return {};
  line.remove_prefix(first + 1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

bool is_indented(std::string_view line) {
  return line.starts_with(' ') || line.starts_with('\t') || line.starts_with("> File ");
}

// True if the message has more lines: its first one shows it, or its type is known for it.
bool says_more_below(const ExceptionLine& line) {
  return line.words.ends_with(':') || (line.has_colon && line.words.empty()) ||
         is_one_of(line.type.substr(line.type.rfind('.') + 1),
                   {"RuntimeError", "DistBackendError", "DistNetworkError", "DistStoreError",
                    "DistributedError", "JaxRuntimeError", "XlaRuntimeError", "ValidationError"});
}

// "Caught KeyError in DataLoader worker process 0." -> "in DataLoader worker process 0".
std::string place_of(std::string_view words) {
  const size_t at = words.find(" in ");
  if (!words.starts_with("Caught ") || at == std::string_view::npos) return "in another process";
  words.remove_prefix(at + 1);
  if (words.ends_with('.')) words.remove_suffix(1);
  return std::string(words);
}

class TracebackReader {
 public:
  TracebackReader(const MessageLines& lines, size_t at, std::string_view prefix)
      : lines_(lines, at, prefix) {}

  size_t at() const { return lines_.at(); }
  bool by_excepthook() const { return lines_.by_excepthook(); }

  // REQUIRES: the current line is a header.
  std::optional<RaisedException> read_chain(Form form, int depth = 0) {
    std::vector<RaisedException> chain;
    for (After after = After::nothing;;) {
      std::optional<RaisedException> block = read_block(form, depth);
      if (!block) break;
      block->after = after;
      chain.push_back(std::move(*block));
      const size_t behind = lines_.at();
      after = skip_link();
      const std::optional<TracebackHeader> header = lines_.header();
      if (after == After::nothing || !header) {
        lines_.go_to(behind);
        break;
      }
      form = header->form;
    }
    return chain.empty() ? std::nullopt : std::optional(told_of_chain(chain));
  }

 private:
  std::optional<RaisedException> read_block(Form form, int depth) {
    if (form == Form::rich) return read_rich_block(lines_);
    if (form == Form::group) return read_group_block();
    skip_frames();
    const std::optional<std::string_view> body = lines_.body();
    if (!body || !parse_exception_line(*body)) return {};
    return read_exception(*parse_exception_line(*body), depth);
  }

  // loguru puts blank lines between frames and before the first one; Python leaves one where the
  // carets would be, if a profiler or debugger called the next frame.
  void skip_frames() {
    lines_.next();
    const bool by_loguru = lines_.is_blank(lines_.at());
    while (const std::optional<std::string_view> body = lines_.body()) {
      const bool is_gap = trimmed(*body).empty() && (by_loguru || has_frame(lines_.at() + 1));
      if (!is_indented(*body) && !is_gap) break;
      lines_.next();
    }
  }

  bool has_frame(size_t at) const {
    const std::optional<std::string_view> body = lines_.body(at);
    return body && body->starts_with("  File \"");
  }

  RaisedException read_exception(const ExceptionLine& line, int depth) {
    lines_.next();
    if (std::optional<RaisedException> nested = read_nested(line, depth)) return *nested;
    std::vector<std::string> further;
    if (lines_.by_excepthook() || says_more_below(line)) further = read_further_lines();
    return raised_by(line, further);
  }

  // The message quotes the traceback of another process, whose exception is the real one.
  std::optional<RaisedException> read_nested(const ExceptionLine& line, int depth) {
    constexpr int kDepthMax = 4;
    const size_t begin = lines_.at();
    const std::string place = skip_to_nested(line);
    if (!place.empty() && depth < kDepthMax) {
      if (std::optional<RaisedException> nested = read_chain(Form::plain, depth + 1)) {
        nested->text += fmt::format(" ({})", place);
        return nested;
      }
    }
    lines_.go_to(begin);
    return {};
  }

  // Moves to the nested traceback's header and returns where it comes from; empty: there is none.
  std::string skip_to_nested(const ExceptionLine& line) {
    std::string place;
    for (int i = 0; i < 3 && lines_.body(); ++i, lines_.next()) {
      const std::string_view body = *lines_.body();
      if (body.starts_with("Original Traceback (most recent call last):")) {
        return place_of(line.words);
      }
      if (!place.empty() && lines_.header()) return place;
      if (body.starts_with("-- Process ")) {
        place = "in process " + std::string(body.substr(11, body.find(' ', 11) - 11));
      } else if (!trimmed(body).empty()) {
        break;
      }
    }
    return {};
  }

  // Reads an exception message's lines after its first. Only torch's hook shows where they end;
  // otherwise a few lines may belong, up to a blank one or one that looks like another message.
  std::vector<std::string> read_further_lines() {
    constexpr size_t kKeptMax = 64;
    constexpr size_t kGuessedMax = 8;
    std::vector<std::string> further;
    while (lines_.body() && (lines_.by_excepthook() || further.size() < kGuessedMax)) {
      size_t at = lines_.at();
      while (lines_.by_excepthook() && lines_.is_blank(at))
        ++at;
      if (!belongs_below(at)) break;
      if (further.size() < kKeptMax) further.emplace_back(*lines_.body(at));
      lines_.go_to(at + 1);
    }
    return further;
  }

  bool belongs_below(size_t at) const {
    const std::optional<std::string_view> body = lines_.body(at);
    if (!body || trimmed(*body).empty()) return false;
    if (lines_.by_excepthook()) return link_of(*body) == After::nothing && !find_header(*body);
    return !opens_something(lines_.all(), at);
  }

  // The exceptions in a group, without the nested groups themselves.
  std::optional<RaisedException> read_group_block() {
    std::vector<RaisedException> leaves;
    std::optional<RaisedException> group;
    bool awaited = true;  // True until the current part's exception has come.
    for (lines_.next(); lines_.body(); lines_.next()) {
      const std::optional<std::string_view> body = behind_margin(*lines_.body());
      if (!body) break;
      if (body->starts_with("-") || body->find("Traceback (most recent call") != body->npos) {
        awaited = true;
        continue;
      }
      const std::optional<ExceptionLine> line = parse_exception_line(*body);
      if (!awaited || !line) continue;
      awaited = false;
      const bool is_group = line->type.ends_with("ExceptionGroup");
      if (!is_group)
        leaves.push_back(raised_by(*line));
      else if (!group)
        group = raised_by(*line);
    }
    return leaves.empty() ? group : told_of_group(leaves);
  }

  // Skips the sentence between two tracebacks, which rich may have wrapped.
  After skip_link() {
    lines_.skip_blank();
    const After after = lines_.body() ? link_of(*lines_.body()) : After::nothing;
    if (after == After::nothing) return after;
    for (int i = 0; i < 4 && lines_.body() && !lines_.is_blank(lines_.at()); ++i)
      lines_.next();
    lines_.skip_blank();
    return after;
  }

  TracebackLines lines_;
};

// True for Python's line above the traceback of an exception that it dropped, or of a second one.
bool makes_minor(std::string_view line) {
  return starts_with_any(line, {"Exception ignored ", "Error in sys.excepthook:",
                                "Error in atexit.", "--- Logging error ---"});
}

// asyncio writes that a task was never awaited, then "future: <Task ...>", above the traceback.
bool is_of_a_lost_task(const MessageLines& lines, size_t at) {
  return at > 1 && without_tags(lines[at - 1].text).starts_with("future: <") &&
         without_tags(lines[at - 2].text).ends_with("exception was never retrieved");
}

bool introduces(std::string_view line) {
  const bool names_it = line.starts_with("Exception in thread ") || line.starts_with("Process ");
  return names_it && line.ends_with(':');
}

// True if the program is a launcher itself, whose children printed their own errors.
bool tells_of_child(std::string_view type) {
  return type.ends_with("CalledProcessError") || type.ends_with("ChildFailedError");
}

TracebackScan scan_from(const MessageLines& lines, size_t at, const TracebackHeader& header) {
  TracebackReader reader(lines, at, header.prefix);
  const std::optional<RaisedException> raised = reader.read_chain(header.form);
  TracebackScan scan{std::max(reader.at(), at + 1), {}};
  if (!raised) return scan;
  Finding finding;
  finding.first = at;
  finding.end = scan.end;
  finding.text = raised->text;
  finding.blame = raised->blame;
  finding.tells_of_child = tells_of_child(raised->type);
  finding.uncaught = reader.by_excepthook();
  if (finding.uncaught) finding.standing = Standing::by_excepthook;
  if (at > 0) {
    const std::string_view above = without_tags(lines[at - 1].text);
    if (makes_minor(above) || is_of_a_lost_task(lines, at)) finding.standing = Standing::minor;
    if (makes_minor(above) || introduces(above)) finding.first = at - 1;
  }
  scan.finding = std::move(finding);
  return scan;
}

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

std::optional<TracebackScan> scan_traceback(const MessageLines& lines, size_t at) {
  const std::optional<TracebackHeader> header = find_header(lines[at].text);
  return header ? std::optional(scan_from(lines, at, *header)) : std::nullopt;
}

std::optional<TracebackScan> scan_cut_traceback(const MessageLines& lines) {
  for (size_t at = 1; at < std::min<size_t>(lines.size(), 4); ++at) {
    const std::string_view line = lines[at].text;
    const std::string_view body = without_tags(line);
    if (find_header(lines[at - 1].text)) return {};
    if (!body.starts_with("  File \"")) continue;
    const TracebackHeader header{Form::plain, line.substr(0, line.size() - body.size())};
    TracebackScan scan = scan_from(lines, at - 1, header);
    return scan.finding ? std::optional(std::move(scan)) : std::nullopt;
  }
  return {};
}

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
