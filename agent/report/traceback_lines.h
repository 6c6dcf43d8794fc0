// The lines of one traceback, without the prefix of its first line, and what each is: primitives of
// the traceback reader (python_words.cc), which reads rich's boxes too. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/blame.h"
#include "agent/report/message_lines.h"

namespace muster {

struct RaisedException {
  enum class After { nothing, cause, context };  // raise X from Y; raise X while handling Y.

  std::string type;
  std::string text;  // One line, type included.
  std::optional<Blame> blame;
  After after = After::nothing;
};

struct TracebackHeader {
  enum class Form { plain, group, rich };

  Form form = Form::plain;
  std::string_view prefix;  // The text before it in its line.
};

std::optional<TracebackHeader> find_header(std::string_view line);

// "pkg.module.SomeError: words".
struct ExceptionLine {
  std::string_view type;
  std::string_view words;
  bool has_colon = false;  // A message should follow, if only on the next line.
};

// nullopt: the line cannot be one.
std::optional<ExceptionLine> parse_exception_line(std::string_view line);

// Returns the link that the line, a sentence between two tracebacks of a chain, states.
RaisedException::After link_of(std::string_view line);

// True if the line opens another message or a log entry.
bool opens_something(const MessageLines& lines, size_t at);

class TracebackLines {
 public:
  TracebackLines(const MessageLines& lines, size_t at, std::string_view prefix);

  size_t at() const { return at_; }
  void next() { ++at_; }
  void go_to(size_t at) { at_ = at; }
  const MessageLines& all() const { return lines_; }

  // torch's excepthook tags nothing but the message, so all lines with its tag belong.
  bool by_excepthook() const { return by_excepthook_; }

  // The line after the prefix; nullopt: there is no line, or it does not belong to this traceback.
  std::optional<std::string_view> body(size_t at) const;
  std::optional<std::string_view> body() const { return body(at_); }
  bool is_blank(size_t at) const;
  void skip_blank();

  // The header in the current line, if it has this traceback's prefix.
  std::optional<TracebackHeader> header() const;

 private:
  const MessageLines& lines_;
  size_t at_;
  std::string prefix_;
  bool by_excepthook_ = false;
};

// The text of an exception in one line. `further`: the lines of its message after the first.
std::string exception_text(const ExceptionLine& line, const std::vector<std::string>& further);

RaisedException raised_by(const ExceptionLine& line, const std::vector<std::string>& further = {});

// Reads the exception below rich's box, whose header is the current line; rich has wrapped its
// message at the terminal's width. nullopt: the box is cut off.
std::optional<RaisedException> read_rich_block(TracebackLines& lines);

// Describes a chain of exceptions, oldest first, in one line: the exception that ended the program
// and the one it came from, "RuntimeError: no shard 3 (caused by KeyError: 'x')". The chain's root
// decides the blame: a program that fails by itself and then loses its connections in its clean-up
// is not a victim; one that wraps a lost connection in its own exception is. REQUIRES: not empty.
RaisedException told_of_chain(const std::vector<RaisedException>& chain);

// Describes an exception group as one exception: the texts of its first three leaves; a victim only
// if all leaves are. REQUIRES: not empty.
RaisedException told_of_group(const std::vector<RaisedException>& leaves);

}  // namespace muster
