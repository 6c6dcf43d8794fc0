#include "agent/report/message_lines.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/agent/report/report_generators.h"

namespace muster {
namespace {

using LineTuples = std::vector<std::tuple<std::string, size_t, size_t>>;

LineTuples tuples_of(const MessageLines& lines) {
  LineTuples tuples;
  for (size_t at = 0; at < lines.size(); ++at)
    tuples.emplace_back(lines[at].text, lines[at].begin, lines[at].end);
  return tuples;
}

TEST(MessageLines, AreCleanButKnowTheirRawBytes) {
  EXPECT_EQ(tuples_of(MessageLines("one\n\x1b[31mtwo\x1b[0m\n\nlast")),
            (LineTuples{{"one", 0, 4}, {"two", 4, 17}, {"", 17, 18}, {"last", 18, 22}}));
  EXPECT_EQ(tuples_of(MessageLines("10%\r 20%\r\n")), (LineTuples{{" 20%", 0, 10}}));
  EXPECT_EQ(tuples_of(MessageLines("")), LineTuples{});
  EXPECT_EQ(tuples_of(MessageLines("\n")), (LineTuples{{"", 0, 1}}));
}

TEST(MessageLines, AreThoseOfATracebackInALogEntryOfJson) {
  const std::string entry =
      R"({"level": "error", "exc": "Traceback (most recent call last):\n  File \"a.py\"\nE: \\x\ty\n"})";
  const size_t end = entry.size() + 1;
  EXPECT_EQ(tuples_of(MessageLines(entry + "\n{\"exc\": 1}")),
            (LineTuples{{"Traceback (most recent call last):", 0, end},
                        {"  File \"a.py\"", 0, end},
                        {"E: \\x\ty", 0, end},
                        {"", 0, end},
                        {"{\"exc\": 1}", end, end + 10}}));
}

TEST(MessageLines, AreNotCut) {
  const std::string message(20'000, 'x');
  EXPECT_EQ(MessageLines(message)[0].text, message);
}

TEST(MessageLines, CountHowOftenTheyAreRead) {
  const MessageLines lines("a\nb\n");
  EXPECT_EQ(lines.looks(), 0u);
  EXPECT_EQ(lines.size(), 2u);
  lines[0].is_blank();
  lines[0].is_blank();
  lines[1].is_blank();
  EXPECT_EQ(lines.looks(), 3u);
}

TEST(MessageLines, AreBlankIfTheyHaveOnlySpacesAndTabs) {
  EXPECT_TRUE((MessageLine{"", 0, 1}.is_blank()));
  EXPECT_TRUE((MessageLine{" \t ", 0, 4}.is_blank()));
  EXPECT_FALSE((MessageLine{" x ", 0, 4}.is_blank()));
}

RC_GTEST_PROP(MessageLines, HoldEachByteOnce, ()) {
  const std::string raw = *any_output();
  size_t end = 0;
  for (const auto& [text, first, last] : tuples_of(MessageLines(raw))) {
    RC_ASSERT(first == end);
    RC_ASSERT(raw.find('\n', first) >= last - 1);
    RC_ASSERT(text.find('\n') == std::string::npos);
    end = last;
  }
  RC_ASSERT(end == raw.size());
}

struct PrefixCase {
  std::string line, prefix;
  std::optional<std::string_view> rest;
};

TEST(MessageLines, ContinueBehindAPrefixOfTheSameShape) {
  const std::vector<PrefixCase> cases = {
      {"[rank1]: x", "[rank1]: ", "x"},
      {"[rank2]: x", "[rank1]: ", "x"},
      {"[rank12]: x", "[rank1]: ", std::nullopt},
      {"[rankx]: x", "[rank1]: ", std::nullopt},
      {"[rank1]: x", "[rankx]: ", std::nullopt},
      {"2026-11-20 22:56:49,007 E  x", "2026-11-20 22:56:48,123 E ", " x"},
      {"2026-11-20 22:56:49,007 I x", "2026-11-20 22:56:48,123 E ", std::nullopt},
      {"[rank1]: ", "[rank1]: ", ""},
      {"[rank1]:", "[rank1]: ", ""},
      {"[rank1]", "[rank1]: ", std::nullopt},
      {"", "  ", ""},
      {"", "a", std::nullopt},
      {"x", "", "x"},
      {"", "", ""},
  };
  for (const PrefixCase& one : cases)
    EXPECT_EQ(behind_prefix(one.line, one.prefix), one.rest) << one.line << "|" << one.prefix;
}

RC_GTEST_PROP(MessageLines, ContinueBehindAPrefixWhateverItsDigits,
              (const std::string& prefix, const std::string& rest)) {
  std::string other = prefix;
  for (char& c : other) {
    if (c >= '0' && c <= '9') c = *rc::gen::inRange<char>('0', '9');
  }
  RC_ASSERT(behind_prefix(other + rest, prefix) == std::string_view(rest));
}

TEST(MessageLines, LoseTheTagsOfLaunchers) {
  const std::string longest = "[" + std::string(61, 'a') + "1]:";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[rank1]: x", "x"},
      {"[rank1]:x", "x"},
      {"[rank1]:  x", " x"},
      {"[default0]:  x", "  x"},
      {"[default0]:[rank0]: x", "x"},
      {"[1,0]<stderr>:x", "x"},
      {"[1,0]<stdout>: x", " x"},
      {"[trainer3]<stderr>:x", "x"},
      {"[rank1]:", ""},
      {longest + "x", "x"},
  };
  for (const auto& [line, rest] : cases)
    EXPECT_EQ(without_tags(line), rest) << line;
}

TEST(MessageLines, KeepWhatOnlyLooksLikeATag) {
  const std::string too_long = "[" + std::string(62, 'a') + "1]:";
  for (const std::string& line :
       {std::string(), std::string("["), std::string("[]:x"), std::string("[1]:x"),
        std::string("[1,0]:x"), std::string("[rank1] x"), std::string("[rank1"),
        std::string("[rank]: x"), std::string("[a1]<other>:x"), std::string("[a1]<stderr>x"),
        std::string(" [rank1]: x"), std::string("[rank1]"), too_long}) {
    EXPECT_EQ(without_tags(line), line);
  }
}

RC_GTEST_PROP(MessageLines, LoseAllTheirTagsAtOnce, (const std::string& text)) {
  const std::string tag =
      *rc::gen::element<std::string>("", "[rank1]: ", "[a0]:", "[1,0]<stderr>:");
  const std::string line = tag + text;
  const std::string_view rest = without_tags(line);
  RC_ASSERT(line.ends_with(rest));
  RC_ASSERT(rest.size() <= text.size());
  RC_ASSERT(without_tags(rest) == rest);
}

TEST(MessageLines, RecognizeTheTagOfTorchsHook) {
  for (const char* prefix : {"[rank1]: ", "[rank123]: ", "[default0]:[rank0]: ", "x [rank0]: "})
    EXPECT_TRUE(ends_in_torch_tag(prefix)) << prefix;
  for (const char* prefix : {"", "]: ", "[rank]: ", "[rankx]: ", "[rank1]:", "[rank1]: x", "[rank",
                             "[rank1]: [default0]:", "[rank1 ]: ", "[rank1][rank]: ", "rank1]: "})
    EXPECT_FALSE(ends_in_torch_tag(prefix)) << prefix;
}

TEST(MessageLines, RecognizeTheStartOfALogEntry) {
  for (const char* line :
       {"[W1122 10:00:00.123 file.cc:1] x", "E1122 15:13:21.957789   17004 file.cc:289] x",
        "[E socket.cpp:458] x", "[rank1]:[W1122 10:00:00.123 a.cpp:1] x", "INFO:root:x", "INFO",
        "DEBUG x", "WARNING x", "WARN x", "ERROR: x", "CRITICAL:x", "[INFO] x", "[ERROR",
        "2026-11-20 22:56:48,123 x", "[2026-11-20 22:56:48] x", "2026/11/20", "11/20/26 x",
        "22:56:48", "22:56:"})
    EXPECT_TRUE(opens_log_entry(line)) << line;
  for (const char* line : {"", "x", "[", "W", "W11 x", "X1122 10:00:00", "[W] x", "[E 12] x",
                           "[x socket.cpp:1] y", "INFORMATION", "WARNINGS: x", "ERRORS", "info: x",
                           " INFO x", "20261120", "2026-1-20", "2026-11/20", "123-45-67", "22:56"})
    EXPECT_FALSE(opens_log_entry(line)) << line;
}

TEST(MessageLines, AreTrimmedOfSpacesAndTabsOnly) {
  EXPECT_EQ(trimmed(" \t a \t b\t "), "a \t b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \t "), "");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(" \na\r "), "\na\r");
}

TEST(MessageLines, HaveAColumnForEachCharacter) {
  EXPECT_EQ(columns(""), 0u);
  EXPECT_EQ(columns("abc"), 3u);
  EXPECT_EQ(columns("╭─é─╮"), 5u);
  EXPECT_EQ(columns("🔥"), 1u);
}

}  // namespace
}  // namespace muster
