#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "agent/report/finding.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

std::string_view line_at(const MessageLines& lines, size_t at) {
  return at < lines.size() ? without_tags(lines[at].text) : std::string_view();
}

Finding line_finding(size_t at, std::string_view text) {
  Finding finding;
  finding.first = at;
  finding.end = at + 1;
  finding.text = text;
  return finding;
}

Finding fatal(size_t at, std::string_view text) {
  Finding finding = line_finding(at, text);
  finding.uncaught = true;
  return finding;
}

// torch's C++ errors carry their stack: "Exception raised from F at file:1 (...)", "frame #0: ...".
size_t skip_frames(const MessageLines& lines, size_t at) {
  while (at < lines.size()) {
    const std::string_view line = line_at(lines, at);
    if (!starts_with_any(line, {"frame #", "Exception raised from ", "<omitting python frames>"}))
      break;
    ++at;
  }
  return at;
}

// Returns a message's further lines, up to a blank line or one that starts something else.
std::string further_lines(const MessageLines& lines, size_t& at) {
  constexpr size_t kLinesMax = 16;
  std::string text;
  for (const size_t last = at + kLinesMax; at < lines.size() && at < last; ++at) {
    const std::string_view line = line_at(lines, at);
    if (trimmed(line).empty() || opens_log_entry(line) ||
        starts_with_any(line, {"***", "Exception raised from ", "frame #", "terminate called ",
                               "Fatal Python error: "}) ||
        contains(line, "Traceback (most recent call last)")) {
      break;
    }
    text += '\n';
    text += line;
  }
  return text;
}

// libstdc++: "terminate called after throwing an instance of 'X'", then "  what():  text".
std::optional<Finding> from_terminate(const MessageLines& lines, size_t at) {
  constexpr std::string_view kWhat = "  what():  ";
  const std::string_view line = line_at(lines, at);
  if (line.starts_with("terminate called without an active exception")) {
    // A thread that was not joined: what happened before explains it.
    Finding finding = fatal(at, line);
    finding.standing = Standing::minor;
    return finding;
  }
  const std::optional<std::string_view> thrown =
      text_after(line, "terminate called after throwing an instance of '");
  if (!thrown) return {};
  const std::string_view type = thrown->substr(0, thrown->rfind('\''));
  Finding finding = fatal(at, type);
  const std::string_view next = line_at(lines, at + 1);
  if (next.starts_with(kWhat)) {
    const std::string_view what = next.substr(kWhat.size());
    finding.text += fmt::format(": {}", what);
    finding.end = at + 2;
    finding.blame = blame_of(type, std::string(what) + further_lines(lines, finding.end));
  }
  finding.end = skip_frames(lines, finding.end);
  return finding;
}

// libc++: "libc++abi: terminating due to uncaught exception of type X: text" (LLVM < 16: "with").
std::optional<Finding> from_libcxx(const MessageLines& lines, size_t at) {
  const std::string_view line = line_at(lines, at);
  if (!line.starts_with("libc++abi: terminating")) return {};
  const std::optional<std::string_view> thrown = text_after(line, " uncaught exception of type ");
  Finding finding = fatal(at, thrown.value_or(line));
  if (!thrown) finding.standing = Standing::minor;
  if (const auto words = text_after(thrown.value_or(""), ": "))
    finding.blame = blame_of(thrown->substr(0, thrown->find(": ")), *words);
  return finding;
}

// The front of "thread 'main' (4711) panicked at", up to the name's end.
std::optional<std::string_view> panicked_thread(std::string_view line) {
  constexpr std::string_view kThread = "thread '";
  if (!line.starts_with(kThread)) return {};
  const size_t end = line.find("' panicked at ");
  if (end != std::string_view::npos) return line.substr(0, end + 1);
  const size_t with_id = line.find(") panicked at ");
  const size_t name_end = line.substr(0, with_id).rfind("' (");
  if (with_id == std::string_view::npos || name_end == std::string_view::npos) return {};
  return line.substr(0, name_end + 1);
}

// Rust: "thread 'main' panicked at src/main.rs:2:5:", then the message (in one line before 1.73;
// with the thread's id from 1.91 on). An assertion's two values follow on two more lines.
std::optional<Finding> from_rust(const MessageLines& lines, size_t at) {
  const std::string_view line = line_at(lines, at);
  const std::optional<std::string_view> thread = panicked_thread(line);
  if (!thread) return {};
  Finding finding = line_finding(at, *thread);
  finding.text += line.substr(line.find(" panicked at "));
  finding.uncaught = *thread == "thread 'main'";
  if (!line.ends_with(':') || at + 1 == lines.size()) return finding;
  finding.text += fmt::format(" {}", line_at(lines, at + 1));
  finding.end = at + 2;
  for (const std::string_view side : {"  left: ", " right: "}) {
    if (line_at(lines, finding.end).starts_with(side)) {
      finding.text += fmt::format(", {}", trimmed(line_at(lines, finding.end++)));
    }
  }
  return finding;
}

// Go: "panic: text"; "\tpanic: text" for one in a deferred function. The stacks below prove Go.
std::optional<Finding> from_go(const MessageLines& lines, size_t at) {
  constexpr size_t kLinesBetweenMax = 3;  // "[signal SIGSEGV: ...]", and a blank one.
  const std::string_view line = line_at(lines, at);
  if (!line.starts_with("panic: ") && !line.starts_with("fatal error: ")) return {};
  Finding finding = line_finding(at, line);
  while (line_at(lines, finding.end).starts_with("\tpanic: "))
    finding.text = trimmed(line_at(lines, finding.end++));
  for (size_t i = 0; i < kLinesBetweenMax; ++i) {
    const std::string_view below = line_at(lines, finding.end + i);
    finding.uncaught |= below.starts_with("goroutine ") || below.starts_with("runtime stack:");
  }
  return finding;
}

// Java: "Exception in thread "main" X: text", frames, "Caused by: Y: text".
std::optional<Finding> from_java(const MessageLines& lines, size_t at) {
  constexpr std::string_view kThread = "Exception in thread \"";
  constexpr std::string_view kCause = "Caused by: ";
  const std::string_view line = line_at(lines, at);
  const size_t name_end = line.find("\" ", kThread.size());
  if (!line.starts_with(kThread) || name_end == std::string_view::npos) return {};
  Finding finding = line_finding(at, line.substr(name_end + 2));
  finding.uncaught = line.substr(kThread.size(), name_end - kThread.size()) == "main";
  std::string_view cause;
  for (; finding.end < lines.size(); ++finding.end) {
    const std::string_view next = line_at(lines, finding.end);
    if (next.starts_with(kCause)) {
      cause = next.substr(kCause.size());
    } else if (!next.starts_with("\tat ") && !next.starts_with("\t... ")) {
      break;
    }
  }
  if (!cause.empty()) finding.text += fmt::format(" (caused by {})", cause);
  return finding;
}

// "Fatal Python error: Segmentation fault", and the stacks that faulthandler writes below.
std::optional<Finding> from_interpreter(const MessageLines& lines, size_t at) {
  const std::string_view line = line_at(lines, at);
  constexpr std::string_view kFatal = "Fatal Python error: ";
  if (!line.starts_with(kFatal)) return {};
  Finding finding = fatal(at, line);
  if (line.substr(kFatal.size()) == "Aborted") finding.standing = Standing::echo;
  for (; finding.end < lines.size(); ++finding.end) {
    const std::string_view next = line_at(lines, finding.end);
    const bool of_dump =
        next.empty() ||
        starts_with_any(next, {"  ", "Current thread ", "Thread 0x", "Extension modules: "});
    if (!of_dump) break;
  }
  return finding;
}

// "/usr/bin/python3: No module named x": the interpreter about its command line; no traceback.
std::optional<Finding> from_python_start(const MessageLines& lines, size_t at) {
  const std::string_view line = line_at(lines, at);
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return {};
  const std::string_view program = line.substr(0, colon);
  const std::string_view name = program.substr(program.rfind('/') + 1);
  const std::string_view said = line.substr(colon + 2);
  const bool known =
      starts_with_any(said, {"No module named ", "Error while finding module specification for ",
                             "can't open file ", "can't find '__main__' module in "});
  if (!known || !starts_with_any(name, {"python", "pypy"})) return {};
  return fatal(at, said);
}

// glibc's allocator and its checks write one line and abort.
bool is_glibc_abort(std::string_view line) {
  return starts_with_any(
      line, {"double free or corruption", "free(): ", "malloc(): ", "malloc_consolidate(): ",
             "realloc(): ", "munmap_chunk(): ", "mremap_chunk(): ", "calloc(): ",
             "corrupted size vs. prev_size", "corrupted double-linked list",
             "*** stack smashing detected ***", "*** buffer overflow detected ***",
             "*** bit out of range 0 - FD_SETSIZE", "*** Error in `", "Fatal glibc error: "});
}

// C's assert(), libstdc++'s and libc++'s checks.
bool is_failed_assertion(std::string_view line) {
  const size_t libcxx = line.find(": assertion ");
  const bool behind_line_number =
      libcxx != std::string_view::npos && libcxx > 0 && is_digit(line[libcxx - 1]);
  return ((contains(line, ": Assertion `") || contains(line, ": Assertion '")) &&
          line.ends_with("' failed.")) ||
         (behind_line_number && contains(line, " failed: "));
}

std::optional<Finding> from_single_line(const MessageLines& lines, size_t at) {
  const std::string_view line = line_at(lines, at);
  // A script that does not parse has no traceback header: "  File ...", then "SyntaxError: ...".
  if (starts_with_any(line, {"SyntaxError: ", "IndentationError: ", "TabError: "}))
    return line_finding(at, line);
  if (is_glibc_abort(line) || is_failed_assertion(line) ||
      line.starts_with("libgomp: Thread creation failed"))
    return fatal(at, line);
  if (line.starts_with("==") && contains(line, "Sanitizer: ")) {
    Finding finding = line_finding(at, line);
    finding.uncaught = contains(line, "==ERROR: ");
    return finding;
  }
  // UndefinedBehaviorSanitizer reports an error and, by default, continues.
  if (contains(line, ": runtime error: ") && !line.starts_with(' ')) return line_finding(at, line);
  return {};
}

struct LogEntry {
  char level = 0;
  std::string_view words;
};

// "[E1122 10:00:00.123456789 file.cpp:632] words", "[E file.cpp:458] words" (torch before 2.1),
// "E1122 15:13:21.957789   17004 file.cc:289] words" (glog, absl).
std::optional<LogEntry> log_entry(std::string_view line) {
  constexpr size_t kHeaderMax = 200;
  const bool open = line.starts_with('[');
  if (open) line.remove_prefix(1);
  if (line.size() < 3 || (line[0] != 'E' && line[0] != 'F')) return {};
  if (line[1] != ' ' && !is_digit(line[1])) return {};
  if (!open && line[1] == ' ') return {};
  const size_t close = line.substr(0, kHeaderMax).find("] ");
  if (close == std::string_view::npos) return {};
  const std::string_view header = line.substr(0, close);
  const size_t colon = header.rfind(':');
  const bool ends_in_line_number =
      colon != std::string_view::npos && colon + 1 < header.size() &&
      header.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  if (!ends_in_line_number) return {};
  return LogEntry{line[0], line.substr(close + 2)};
}

// JAX prints a long preamble before the status that says what happened.
std::string without_preamble(const std::string& words) {
  const std::optional<std::string_view> status = text_after(words, "absl::Status: ");
  return status ? fmt::format("JAX distributed service: {}", *status) : words;
}

// A log entry counts only if it blames a peer or is fatal, which ends the program.
std::optional<Finding> from_log(const MessageLines& lines, size_t at) {
  const std::optional<LogEntry> entry = log_entry(line_at(lines, at));
  if (!entry) return {};
  Finding finding = line_finding(at, {});
  const std::string words = std::string(entry->words) + further_lines(lines, finding.end);
  finding.blame = blame_of({}, words);
  finding.uncaught = entry->level == 'F';
  if (!finding.uncaught && !finding.blame) return {};
  std::string text = without_preamble(words);
  std::ranges::replace(text, '\n', ' ');
  finding.text = trimmed(text);
  finding.end = skip_frames(lines, finding.end);
  return finding;
}

std::optional<Finding> if_it_blames(Finding finding, std::string_view words) {
  finding.blame = blame_of({}, words);
  return finding.blame ? std::optional(std::move(finding)) : std::nullopt;
}

std::optional<Finding> from_nccl_warning(const MessageLines& lines, size_t at) {
  const std::optional<std::string_view> warning = text_after(line_at(lines, at), " NCCL WARN ");
  if (!warning) return {};
  const std::string text = fmt::format("NCCL WARN {}", trimmed(*warning));
  return if_it_blames(line_finding(at, text), text);
}

std::optional<Finding> from_open_mpi(const MessageLines& lines, size_t at) {
  const std::string_view line = line_at(lines, at);
  if (!line.starts_with("An MPI communication peer process has ")) return {};
  Finding finding = line_finding(at, line.substr(0, line.find('.')));
  finding.blame = blame_of({}, line);
  return finding;
}

}  // namespace

std::optional<Finding> find_native(const MessageLines& lines, size_t at) {
  constexpr std::array kFinders = {from_terminate,    from_libcxx,      from_rust,
                                   from_go,           from_java,        from_interpreter,
                                   from_python_start, from_single_line, from_log,
                                   from_nccl_warning, from_open_mpi};
  for (const auto finder : kFinders) {
    if (std::optional<Finding> finding = finder(lines, at)) return finding;
  }
  return {};
}

}  // namespace muster
