#include "agent/report/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(CleanLine, KeepsPlainTextAndUtf8) {
  EXPECT_EQ(clean_line("loss = 0.1\t(épocha 2, 進捗 ███ 🚀)"),
            "loss = 0.1\t(épocha 2, 進捗 ███ 🚀)");
}

TEST(CleanLine, RemovesColoursCursorMovesAndTitles) {
  EXPECT_EQ(clean_line("\x1b[1;31merror\x1b[0m: \x1b[2K\x1b[10;5Hboom"), "error: boom");
  EXPECT_EQ(clean_line("\x1b]0;my title\x07text"), "text");
  EXPECT_EQ(clean_line("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\!"), "link!");
  EXPECT_EQ(clean_line("\x1b(Bascii\x1b"
                       "7saved\x1b=keypad"),
            "asciisavedkeypad");
  EXPECT_EQ(clean_line("\x1bPdcs;payload\x1b\\after"), "after");
}

TEST(CleanLine, SurvivesTornEscapeSequences) {
  EXPECT_EQ(clean_line("tail\x1b"), "tail");
  EXPECT_EQ(clean_line("tail\x1b["), "tail");
  EXPECT_EQ(clean_line("tail\x1b[3"), "tail");
  EXPECT_EQ(clean_line("tail\x1b]0;never ended"), "tail");
  EXPECT_EQ(clean_line("tail\x1b("), "tail");
}

TEST(CleanLine, RemovesControlCharactersOfBothSets) {
  EXPECT_EQ(clean_line(std::string("a\0b\x01"
                                   "c\ad\be\x7f"
                                   "f",
                                   11)),
            "abcdef");
  EXPECT_EQ(clean_line("a\xC2\x9B"
                       "31mb"),
            "a31mb");  // U+009B, the one-character CSI
}

TEST(CleanLine, RemovesMarksThatReorderText) {
  EXPECT_EQ(clean_line("a\xE2\x80\xAE"
                       "b\xE2\x81\xA6"
                       "c"),
            "abc");  // U+202E, U+2066
}

TEST(CleanLine, ReplacesInvalidUtf8) {
  EXPECT_EQ(clean_line("a\xff"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(clean_line("a\xC3"), "a\xEF\xBF\xBD");                                // torn
  EXPECT_EQ(clean_line("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(clean_line("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(clean_line("\xF5\x80\x80\x80").size(), 12u);                          // above U+10FFFF
}

TEST(CleanMessage, KeepsNewlinesAndNoControlOfTheTerminal) {
  EXPECT_EQ(clean_message("rank 3 on b exited: \x1b]0;title\x07"
                          "boom\n  \x1b[31mnext\x1b[0m"),
            "rank 3 on b exited: boom\n  next");
  EXPECT_EQ(clean_message("one\n\ntwo\n"), "one\n\ntwo\n");
  EXPECT_EQ(clean_message(""), "");
}

TEST(CleanLine, ShowsTheLastStateOfAProgressBar) {
  EXPECT_EQ(clean_line("\r10%\r50%\r99%"), "99%");
  EXPECT_EQ(clean_line("50%\r99%\r"), "99%");
  EXPECT_EQ(clean_line("windows line\r"), "windows line");
  EXPECT_EQ(clean_line("99%\r     \r"), "99%");
  EXPECT_EQ(clean_line("99%\r\x1b[2K"), "99%");
  EXPECT_EQ(clean_line("\r\r\r"), "");
}

TEST(CleanLine, CutsLongLinesAndSaysHowMuch) {
  EXPECT_EQ(clean_line("0123456789", 10), "0123456789");
  EXPECT_EQ(clean_line("0123456789", 4), "0123 ... (6 more characters)");
  EXPECT_EQ(clean_line("ééééé", 2), "éé ... (3 more characters)");
}

RC_GTEST_PROP(CleanLine, RemovesEverythingThatATerminalWouldObey, (const std::string& raw)) {
  const std::string text = clean_line(raw);
  for (const char c : text) {
    RC_ASSERT(static_cast<unsigned char>(c) >= 0x20 || c == '\t');
    RC_ASSERT(c != '\x7f');
  }
  RC_ASSERT(text.find("\xC2\x9B") == std::string::npos);
}

RC_GTEST_PROP(CleanLine, IsIdempotent, (const std::string& raw)) {
  const std::string once = clean_line(raw, 1000);
  RC_ASSERT(clean_line(once, 1100) == once);
}

TEST(LastLines, GivesTheEndInOrder) {
  EXPECT_THAT(last_lines("a\nb\nc\n", 2), ElementsAre("b", "c"));
  EXPECT_THAT(last_lines("a\nb\nc\n", 9), ElementsAre("a", "b", "c"));
  EXPECT_THAT(last_lines("a\nb\nno newline", 2), ElementsAre("b", "no newline"));
}

TEST(LastLines, DropsEmptyLinesOnlyAtTheEnd) {
  EXPECT_THAT(last_lines("a\n\nb\n\n \n\x1b[0m\n", 9), ElementsAre("a", "", "b"));
  EXPECT_THAT(last_lines("\n\n\n", 9), IsEmpty());
  EXPECT_THAT(last_lines("", 9), IsEmpty());
  EXPECT_THAT(last_lines("a\n", 0), IsEmpty());
}

TEST(RankRanges, JoinsNeighbours) {
  EXPECT_EQ(rank_ranges({}), "");
  EXPECT_EQ(rank_ranges({3}), "3");
  EXPECT_EQ(rank_ranges({0, 1, 2, 3, 7, 9, 10}), "0-3,7,9-10");
}

TEST(RankRanges, StopsAfterEnoughRanges) {
  EXPECT_EQ(rank_ranges({0, 2, 4, 6, 7, 9}, 2), "0,2,... (4 more)");
  EXPECT_EQ(rank_ranges({0, 2}, 2), "0,2");
}

TEST(ValidUtf8, ReplacesOnlyInvalidBytes) {
  EXPECT_EQ(valid_utf8(""), "");
  EXPECT_EQ(valid_utf8("plain \x1b[2J\n\t"), "plain \x1b[2J\n\t");
  EXPECT_EQ(valid_utf8("caf\xC3\xA9 \xF0\x9F\x94\xA5"), "caf\xC3\xA9 \xF0\x9F\x94\xA5");
  EXPECT_EQ(valid_utf8("a\xffz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(valid_utf8("\xC3"), "\xEF\xBF\xBD");
  EXPECT_EQ(valid_utf8("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Utf8Suffix, BeginsAtACharacter) {
  EXPECT_EQ(utf8_suffix("abc", 3), "abc");
  EXPECT_EQ(utf8_suffix("abc", 2), "bc");
  EXPECT_EQ(utf8_suffix("\xC3\xA9z", 2), "z");
  EXPECT_EQ(utf8_suffix("\xF0\x9F\x94\xA5", 3), "");
  EXPECT_EQ(utf8_suffix("abc", 0), "");
}

TEST(NodeText, NamesHostAndRank) {
  EXPECT_EQ(node_text("node-b", 1), "node-b (node rank 1)");
  EXPECT_EQ(node_text("node-b", -1), "node-b");
  EXPECT_EQ(node_text("node\x1b[2J-b\n", 0), "node-b (node rank 0)");
}

TEST(LastLines, CutsLinesAtTheGivenLength) {
  EXPECT_EQ(last_lines("one\nabcdef\n", 2, 3),
            (std::vector<std::string>{"one", "abc ... (3 more characters)"}));
}

TEST(RanksText, KnowsSingularAndPlural) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({3, 4}), "ranks 3-4");
}

TEST(DurationText, UsesTheUnitsThatFit) {
  EXPECT_EQ(duration_text(milliseconds{-5}), "0 ms");
  EXPECT_EQ(duration_text(milliseconds{450}), "450 ms");
  EXPECT_EQ(duration_text(milliseconds{2149}), "2.1 s");
  EXPECT_EQ(duration_text(milliseconds{59'999}), "59.9 s");
  EXPECT_EQ(duration_text(seconds{185}), "3 min 5 s");
  EXPECT_EQ(duration_text(seconds{7620}), "2 h 7 min");
  EXPECT_EQ(duration_text(seconds{90'000}), "1 d 1 h");
}

TEST(BytesText, UsesBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(512 * 1024), "512 KiB");
  EXPECT_EQ(bytes_text(int64_t{64} << 20), "64 MiB");
  EXPECT_EQ(bytes_text(8'160'437'862), "7.6 GiB");
  EXPECT_EQ(bytes_text(int64_t{5000} << 40), "5000 TiB");
}

TEST(WallTimeText, ShowsLocalTimeAsTorchrunDoes) {
  EXPECT_EQ(wall_time_text(sample_time(), seconds{0}), "2026-11-20_22:56:48");
  EXPECT_EQ(wall_time_text(sample_time(), seconds{2 * 3600}), "2026-11-21_00:56:48");
  EXPECT_EQ(wall_time_text(sample_time(), seconds{-5 * 3600}), "2026-11-20_17:56:48");
}

TEST(WallTimeIso, IsUtcWithMilliseconds) {
  EXPECT_EQ(wall_time_iso(sample_time()), "2026-11-20T22:56:48.123Z");
  EXPECT_EQ(wall_time_iso(WallTime{}), "1970-01-01T00:00:00.000Z");
}

TEST(RangesOf, JoinNeighbours) {
  using Ranges = std::vector<std::pair<int, int>>;
  EXPECT_EQ(ranges_of({}), Ranges{});
  EXPECT_EQ(ranges_of({0, 1, 2, 2, 5, 7, 8}), (Ranges{{0, 2}, {5, 5}, {7, 8}}));
}

}  // namespace
}  // namespace muster
