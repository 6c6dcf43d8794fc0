#include "agent/report/quoted_lines.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "agent/report/last_words.h"
#include "agent/report/message_lines.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// The path in `  File "/usr/lib/python3/threading.py", line 1045, in run`; nullopt: another line.
std::optional<std::string_view> frame_path(std::string_view body) {
  constexpr std::string_view kStart = "  File \"";
  if (!body.starts_with(kStart)) return {};
  body.remove_prefix(kStart.size());
  const size_t end = body.find("\", line ");
  return end == std::string_view::npos ? std::nullopt : std::optional(body.substr(0, end));
}

bool is_carets(std::string_view body) {
  const std::string_view marks = trimmed(body);
  return body.starts_with("    ") && !marks.empty() &&
         marks.find_first_not_of("^~ ") == std::string_view::npos;
}

bool is_frame(const std::string& line) {
  return frame_path(without_tags(line)).has_value();
}

// One frame of a traceback: its line with the path, and those with the code.
struct Frame {
  std::vector<std::string> lines;
  std::string tags;     // Before each line: "[rank0]: ".
  std::string library;  // Empty: the program's own.
};

// Reads the frame at `at` and moves on, also past a blank line before the next frame; nullopt:
// there is none.
std::optional<Frame> take_frame(const std::vector<std::string>& lines, size_t& at) {
  const std::string_view body = without_tags(lines[at]);
  const std::optional<std::string_view> path = frame_path(body);
  if (!path) return {};
  Frame frame;
  frame.tags = lines[at].substr(0, lines[at].size() - body.size());
  frame.library = library_of(*path);
  frame.lines.push_back(lines[at++]);
  for (; at < lines.size(); ++at) {
    const std::string_view code = without_tags(lines[at]);
    if (trimmed(code).empty() && at + 1 < lines.size() && is_frame(lines[at + 1])) continue;
    if (!code.starts_with("    ")) break;
    if (!is_carets(code)) frame.lines.push_back(lines[at]);
  }
  return frame;
}

// "  … 9 frames of torch, Python …"
std::string folded_frames(const std::vector<Frame>& frames) {
  std::vector<std::string> names;
  for (const Frame& frame : frames) {
    if (std::ranges::find(names, frame.library) == names.end()) names.push_back(frame.library);
  }
  return fmt::format("{}  … {} of {} …", frames.front().tags, counted(frames.size(), "frame"),
                     fmt::join(names, ", "));
}

// Appends a traceback's frames. One that has none of the program's keeps its innermost one.
void append_frames(std::vector<Frame> frames, std::vector<std::string>& out) {
  const bool has_own =
      std::ranges::any_of(frames, [](const Frame& frame) { return frame.library.empty(); });
  if (!has_own && !frames.empty()) frames.back().library.clear();
  std::vector<Frame> of_libraries;
  const auto fold = [&] {
    if (!of_libraries.empty()) out.push_back(folded_frames(of_libraries));
    of_libraries.clear();
  };
  for (Frame& frame : frames) {
    if (!frame.library.empty()) {
      of_libraries.push_back(std::move(frame));
      continue;
    }
    fold();
    out.insert(out.end(), frame.lines.begin(), frame.lines.end());
  }
  fold();
}

// The text in which an exception that was logged and then ended the program stands once: of several
// tracebacks of the same exception the last one is kept.
std::string without_repeated_tracebacks(std::string_view raw) {
  std::vector<ErrorMessage> messages = error_messages(raw);
  std::erase_if(messages, [&](const ErrorMessage& one) {
    return std::ranges::count(raw.substr(one.begin, one.end - one.begin), '\n') < 3;
  });
  std::set<std::string> below;
  std::string text(raw);
  for (const ErrorMessage& one : std::views::reverse(messages)) {
    if (!below.insert(one.text).second)
      text.replace(one.begin, one.end - one.begin, "  … the exception below, logged before …\n");
  }
  return text;
}

// Leaves out what faulthandler prints of muster's own thread in the program, the recorder's.
std::vector<std::string> without_own_thread(std::vector<std::string> lines) {
  for (auto begin = lines.begin(); begin != lines.end();) {
    if (!begin->starts_with("Thread 0x")) {
      ++begin;
      continue;
    }
    auto end = std::find_if_not(begin + 1, lines.end(), is_frame);
    const bool is_own = std::any_of(begin, end, [](const std::string& line) {
      return contains(line, "/_muster_recorder.py\", line ") && line.ends_with(" in run");
    });
    if (is_own && end != lines.end() && end->empty()) ++end;
    begin = is_own ? lines.erase(begin, end) : end;
  }
  return lines;
}

std::vector<std::string> end_of_quote(std::vector<std::string> quoted, size_t lines_max) {
  constexpr std::ptrdiff_t kAboveMax = 100;
  if (quoted.size() <= lines_max) return quoted;
  const auto cut = quoted.end() - static_cast<std::ptrdiff_t>(lines_max);
  std::vector<std::string> shown(cut, quoted.end());
  if (lines_max < 4 || std::any_of(cut, quoted.end(), is_frame)) return shown;
  const auto above = quoted.begin() + std::max<std::ptrdiff_t>(0, cut - quoted.begin() - kAboveMax);
  const auto frame =
      std::find_if(std::reverse_iterator(cut), std::reverse_iterator(above), is_frame);
  if (frame == std::reverse_iterator(above)) return shown;
  const auto at = frame.base() - 1;  // Its code may be the first line of the quote.
  shown[0] = *at;
  if (at + 1 != cut) {
    shown[1] = *(at + 1);
    shown[2] = "  ...";
  }
  return shown;
}

// Quotes once. What a quote leaves out may have kept two tracebacks apart, so that a quote of the
// quote is shorter.
std::vector<std::string> quote_once(std::string_view raw, size_t lines_max, size_t characters_max) {
  const MessageLines lines(raw);  // Also those within a log entry of JSON.
  std::string text;
  for (size_t at = 0; at < lines.size(); ++at)
    text += lines[at].text + "\n";
  const std::vector<std::string> all = without_own_thread(last_lines(
      without_repeated_tracebacks(text), std::numeric_limits<size_t>::max(), characters_max));
  std::vector<std::string> quoted;
  std::vector<Frame> frames;
  for (size_t at = 0; at < all.size();) {
    if (std::optional<Frame> frame = take_frame(all, at)) {
      frames.push_back(std::move(*frame));
      continue;
    }
    append_frames(std::exchange(frames, {}), quoted);
    quoted.push_back(all[at++]);
  }
  append_frames(std::move(frames), quoted);
  return end_of_quote(std::move(quoted), lines_max);
}

}  // namespace

std::string library_of(std::string_view path) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = path.rfind(folder);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = path.substr(at + folder.size());
    const std::string_view name = rest.substr(0, rest.find('/'));
    return std::string(name.ends_with(".py") ? name.substr(0, name.size() - 3) : name);
  }
  const bool is_of_python = path.starts_with("<frozen ") || contains(path, "/lib/python3");
  return is_of_python ? "Python" : "";
}

std::vector<std::string> quoted_lines(std::string_view raw, size_t lines_max,
                                      size_t characters_max) {
  std::vector<std::string> quoted = quote_once(raw, lines_max, characters_max);
  for (;;) {
    const std::string text = fmt::format("{}", fmt::join(quoted, "\n"));
    std::vector<std::string> again = quote_once(text, lines_max, characters_max);
    if (again.size() >= quoted.size()) return quoted;
    quoted = std::move(again);
  }
}

}  // namespace muster
