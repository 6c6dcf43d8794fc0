#include "agent/report/traceback_lines.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using HeaderForm = TracebackHeader::Form;

std::string header_text(const std::optional<TracebackHeader>& header) {
  if (!header) return "none";
  const char* form = header->form == HeaderForm::plain   ? "plain"
                     : header->form == HeaderForm::group ? "group"
                                                         : "rich";
  return fmt::format("{} behind '{}'", form, header->prefix);
}

TEST(TracebackLines, FindTheHeaderOfEveryForm) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Traceback (most recent call last):", "plain behind ''"},
      {"Traceback (most recent call last):  ", "plain behind ''"},
      {"[rank1]: Traceback (most recent call last):", "plain behind '[rank1]: '"},
      {" 20%|## | 2/9Traceback (most recent call last):", "plain behind ' 20%|## | 2/9'"},
      {"Original Traceback (most recent call last):", "plain behind 'Original '"},
      {"  + Exception Group Traceback (most recent call last):", "group behind ''"},
      {"Exception Group Traceback (most recent call last):", "group behind ''"},
      {"[rank1]:   + Exception Group Traceback (most recent call last):",
       "group behind '[rank1]: '"},
      {"╭── Traceback (most recent call last) ──╮", "rich behind ''"},
      {"[rank0]: ╭─ Traceback (most recent c─╮", "rich behind '[rank0]: '"},
      {"+--- Traceback (most recent call last) ---+", "rich behind ''"},
      {"+- Traceback (most recent call last) --+", "rich behind ''"},
      {"Traceback (most recent call last)", "none"},
      {"Traceback (most recent call last): in it", "none"},
      {"Traceback (most recent call first):", "none"},
      {"╭── Traceback (most recent call last) ──", "none"},
      {"── Traceback (most recent call last) ──╮", "none"},
      {"", "none"},
  };
  for (const auto& [line, expected] : cases)
    EXPECT_EQ(header_text(find_header(line)), expected) << line;
}

std::string parsed_text(const std::string& text) {
  const std::optional<ExceptionLine> line = parse_exception_line(text);
  return line ? fmt::format("{}|{}|{}", line->type, line->words, line->has_colon) : "none";
}

TEST(TracebackLines, SplitAnExceptionsTypeFromItsMessage) {
  EXPECT_EQ(parsed_text("KeyError: 'x'"), "KeyError|'x'|true");
  EXPECT_EQ(parsed_text("AssertionError"), "AssertionError||false");
  EXPECT_EQ(parsed_text("AssertionError \t"), "AssertionError||false");
  EXPECT_EQ(parsed_text("pkg.mod.MyError:"), "pkg.mod.MyError||true");
  EXPECT_EQ(parsed_text("f.<locals>.E: a: b "), "f.<locals>.E|a: b|true");
  EXPECT_EQ(parsed_text("_E2: x"), "_E2|x|true");
  EXPECT_EQ(parsed_text("ÄrgerError: x"), "ÄrgerError|x|true");
  for (const char* line : {"", " ", " KeyError: x", "1Error: x", ".Error: x", "<E>: x", "two words",
                           "epoch 3: done", "KeyError : x", "Key-Error: x", "100", ": x"})
    EXPECT_EQ(parsed_text(line), "none") << line;
}

TEST(TracebackLines, RecognizeTheSentencesBetweenLinksOfAChain) {
  using After = RaisedException::After;
  EXPECT_EQ(link_of("The above exception was the direct cause of the following exception:"),
            After::cause);
  EXPECT_EQ(link_of("The above exception was the direct cause"), After::cause);
  EXPECT_EQ(link_of("During handling of the above exception, another exception occurred:"),
            After::context);
  EXPECT_EQ(link_of(" During handling of the above exception, another"), After::nothing);
  EXPECT_EQ(link_of("The above exception"), After::nothing);
  EXPECT_EQ(link_of(""), After::nothing);
}

TEST(TracebackLines, RecognizeTheStartOfAnotherMessage) {
  for (const char* line :
       {"INFO:root:x", "Exception ignored in: <f>", "Error in sys.excepthook:", "Error in atexit.x",
        "Exception in thread T-1:", "--- Logging error ---", "Traceback (most recent call last):",
        "double free or corruption (out)", "terminate called without an active exception"})
    EXPECT_TRUE(opens_something(MessageLines(line + std::string("\n")), 0)) << line;
  for (const char* line :
       {"", "  File \"a.py\"", "KeyError: 'x'", "words", "Exception", "Error in"})
    EXPECT_FALSE(opens_something(MessageLines(line + std::string("\n")), 0)) << line;
}

// A text whose first line is the header of a traceback.
struct SeenTraceback {
  explicit SeenTraceback(const std::string& text)
      : all(text), lines(all, 0, find_header(all[0].text).value().prefix) {}

  std::string body(size_t at) const {
    const std::optional<std::string_view> found = lines.body(at);
    return found ? fmt::format("'{}'", *found) : "none";
  }

  MessageLines all;
  TracebackLines lines;
};

TEST(TracebackLines, ShareThePrefixOfTheHeader) {
  const SeenTraceback seen(
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n\n[rank1]:\n"
      "[rank1]: E: x\nE: y\n[default0]:\n[default0]:x\n");
  EXPECT_EQ(seen.body(0), "'Traceback (most recent call last):'");
  EXPECT_EQ(seen.body(1), "'  File \"a\"'");
  EXPECT_EQ(seen.body(2), "''");
  EXPECT_EQ(seen.body(3), "''");
  EXPECT_EQ(seen.body(4), "'E: x'");
  EXPECT_EQ(seen.body(5), "none");
  EXPECT_EQ(seen.body(6), "''");
  EXPECT_EQ(seen.body(7), "none");
  EXPECT_EQ(seen.body(8), "none");
  EXPECT_TRUE(seen.lines.by_excepthook());
  EXPECT_TRUE(seen.lines.is_blank(2));
  EXPECT_FALSE(seen.lines.is_blank(4));
  EXPECT_FALSE(seen.lines.is_blank(5));
  EXPECT_FALSE(seen.lines.is_blank(8));
}

TEST(TracebackLines, NeedNotRepeatWhatALoggerWroteBeforeTheHeader) {
  const SeenTraceback bar(" 20%| 2/9Traceback (most recent call last):\n  File \"a\"\nE: x\n");
  EXPECT_EQ(bar.body(1), "'  File \"a\"'");
  EXPECT_FALSE(bar.lines.by_excepthook());
  const SeenTraceback tagged(
      "[default0]:ERROR Traceback (most recent call last):\n[default0]:  File \"a\"\nE: x\n");
  EXPECT_EQ(tagged.body(1), "'  File \"a\"'");
  EXPECT_EQ(tagged.body(2), "none");
}

TEST(TracebackLines, MustRepeatALoggersPrefixIfTheNextLineDoes) {
  const SeenTraceback seen(
      "2026-11-20 10:00:00 E Traceback (most recent call last):\n"
      "2026-11-20 10:00:01 E   File \"a\"\nE: x\n");
  EXPECT_EQ(seen.body(1), "'  File \"a\"'");
  EXPECT_EQ(seen.body(2), "none");
}

TEST(TracebackLines, MayEndWithTheHeader) {
  const SeenTraceback seen("[rank1]: Traceback (most recent call last):");
  EXPECT_EQ(seen.body(1), "none");
  EXPECT_FALSE(seen.lines.is_blank(1));
  EXPECT_FALSE(seen.lines.by_excepthook());
}

TEST(TracebackLines, FindALaterHeaderOnlyRightBehindThePrefix) {
  SeenTraceback seen(
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n"
      "[rank1]: Traceback (most recent call last):\n[rank1]: x Traceback (most recent call last):\n"
      "Traceback (most recent call last):\n");
  EXPECT_EQ(header_text(seen.lines.header()), "plain behind ''");
  seen.lines.go_to(2);
  EXPECT_EQ(header_text(seen.lines.header()), "plain behind ''");
  for (size_t at = 3; at <= 5; ++at) {
    seen.lines.next();
    EXPECT_EQ(seen.lines.at(), at);
    EXPECT_EQ(header_text(seen.lines.header()), "none") << at;
  }
}

struct MessageCase {
  std::string line;
  std::vector<std::string> further;
  std::string text;
};

TEST(TracebackLines, ShowAnExceptionInOneLine) {
  const std::string nccl = "DistBackendError: NCCL error in: a.cpp:1, unhandled system error";
  const std::vector<MessageCase> cases = {
      {"KeyError: 'x'", {}, "KeyError: 'x'"},
      {"AssertionError", {"more"}, "AssertionError"},
      {"ValueError: boom", {"more"}, "ValueError: boom"},
      {"RuntimeError: ", {"", "  more ", "last"}, "RuntimeError: more"},
      {"RuntimeError:", {"", " "}, "RuntimeError"},
      {"RuntimeError: it failed:", {"for x"}, "RuntimeError: it failed: for x"},
      {"RuntimeError: it failed:", {}, "RuntimeError: it failed:"},
      {"E: 1 validation error for M",
       {"lr", "  Input should be > 0", "  For more"},
       "E: 1 validation error for M: lr: Input should be > 0"},
      {nccl,
       {"ncclSystemError: x", "Last error:", " socket closed "},
       nccl + "; last error: socket closed"},
      {nccl, {"ncclSystemError: x", "Last error:"}, nccl},
      {nccl, {"ncclSystemError: x"}, nccl},
  };
  for (const MessageCase& one : cases)
    EXPECT_EQ(exception_text(parse_exception_line(one.line).value(), one.further), one.text);
}

// A box as rich draws it, `width` columns wide, with one frame in it.
std::string rich_box(size_t width) {
  const std::string title = "─ Traceback (most recent call last) ";
  const std::string inside = " a.py:1 in f";
  std::string upper = "╭" + title, lower = "╰", frame = "│" + inside;
  for (size_t at = columns(upper); at + 1 < width; ++at)
    upper += "─";
  for (size_t at = 1; at + 1 < width; ++at)
    lower += "─";
  for (size_t at = columns(frame); at + 1 < width; ++at)
    frame += ' ';
  return upper + "╮\n" + frame + "│\n" + lower + "╯\n";
}

// Shows the number of lines of a rich block and its exception.
std::string rich_text(const std::string& text) {
  SeenTraceback seen(text);
  const std::optional<RaisedException> raised = read_rich_block(seen.lines);
  return raised ? fmt::format("{} {}|{}", seen.lines.at(), raised->type, raised->text) : "none";
}

TEST(TracebackLines, ReadTheExceptionUnderRichsBox) {
  EXPECT_EQ(rich_text(rich_box(60) + "ValueError: boom\nepoch 2\n"),
            "4 ValueError|ValueError: boom");
  EXPECT_EQ(rich_text(rich_box(60) + "AssertionError\n"), "4 AssertionError|AssertionError");
  EXPECT_EQ(rich_text("+-- Traceback (most recent call last) -+\n| a.py:1 |\n+--------+\nE: x\n"),
            "4 E|E: x");
}

TEST(TracebackLines, UndoRichsLineBreaks) {
  const std::string full = "ValueError: " + std::string(24, 'a');  // Leaves four of 40 columns.
  EXPECT_EQ(rich_text(rich_box(40) + full + "\nbbbb c\n"), "5 ValueError|" + full + " bbbb c");
  EXPECT_EQ(rich_text(rich_box(40) + full + "\nbbb c\n"), "4 ValueError|" + full);
  const std::string wide = "E:" + std::string(38, 'a');  // One word, broken at the edge of the box.
  EXPECT_EQ(rich_text(rich_box(40) + wide + "\nbb\n"), "5 E|E: " + std::string(38, 'a') + "bb");
  EXPECT_EQ(rich_text(rich_box(100) + "ValueError: a \nb\nc\n"), "5 ValueError|ValueError: a b");
}

TEST(TracebackLines, SkipRichsBoxAroundASyntaxError) {
  const std::string sample = "╭────╮\n│ de │\n╰────╯\n";
  EXPECT_EQ(rich_text(rich_box(60) + sample + "SyntaxError: invalid syntax\n"),
            "7 SyntaxError|SyntaxError: invalid syntax");
}

TEST(TracebackLines, NameTheLeavesOfAGroupInRichsBoxes) {
  const auto leaf = [](const std::string& text) {
    return "╭─ Sub-exception #1 ─╮\n│ ╭ Traceback ╮ │\n│ " + text + " │\n╰──╯\n";
  };
  EXPECT_EQ(rich_text(rich_box(60) + "ExceptionGroup: two (2 sub-exceptions)\n\n" +
                      leaf("ValueError: a") + leaf("KeyError: 'b'")),
            "13 ValueError|ValueError: a; KeyError: 'b'");
  EXPECT_EQ(rich_text(rich_box(60) + "ExceptionGroup: two (2 sub-exceptions)\n"),
            "4 ExceptionGroup|ExceptionGroup: two (2 sub-exceptions)");
}

TEST(TracebackLines, IgnoreATruncatedBox) {
  const std::string box = rich_box(60);
  for (const std::string& text :
       {box, box.substr(0, box.find("╰")), box.substr(0, box.find('\n') + 1), box + "\nE: x\n",
        box + "╭────╮\n│ de │\n", box + "two words\n"})
    EXPECT_EQ(rich_text(text), "none") << text;
}

}  // namespace
}  // namespace muster
