#include "rendezvous/base/text.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Split, KeepsEmptyItems) {
  using Views = std::vector<std::string_view>;
  EXPECT_EQ(split("", ','), Views({""}));
  EXPECT_EQ(split("a", ','), Views({"a"}));
  EXPECT_EQ(split(",a,", ','), Views({"", "a", ""}));
}

TEST(Trim, RemovesSpaceAtBothEnds) {
  EXPECT_EQ(trim("  a b\t\n"), "a b");
  EXPECT_EQ(trim(" \t"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(WholeNumber, ParsesOnlyATextThatIsAllNumber) {
  EXPECT_EQ(whole_number<int>("007"), 7);
  EXPECT_EQ(whole_number<int>("-1"), -1);
  EXPECT_EQ(whole_number<uint8_t>("255"), 255);
  EXPECT_EQ(whole_number<uint8_t>("ff", 16), 255);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1.0", "0x1", "256", "x"})
    EXPECT_EQ(whole_number<uint8_t>(text), std::nullopt) << text;
}

TEST(TakeNumber, LeavesTheRestOfTheText) {
  std::string_view text = "12.5";
  EXPECT_EQ(take_number<int>(text), 12);
  EXPECT_EQ(text, ".5");
  EXPECT_EQ(take_number<int>(text), std::nullopt);
  EXPECT_EQ(text, ".5");
  std::string_view large = "256,";
  EXPECT_EQ(take_number<uint8_t>(large), std::nullopt);
  EXPECT_EQ(large, "256,");
}

TEST(TextAfter, StartsAfterTheFirstMatch) {
  EXPECT_EQ(text_after("a: b: c", ": "), "b: c");
  EXPECT_EQ(text_after("a: ", ": "), "");
  EXPECT_EQ(text_after("a", ": "), std::nullopt);
}

TEST(LastLine, SkipsTrailingEmptyLines) {
  EXPECT_EQ(last_line("a"), "a");
  EXPECT_EQ(last_line("a\nb\r\n\n"), "b");
  EXPECT_EQ(last_line("\r\n"), "");
  EXPECT_EQ(last_line(""), "");
}

TEST(Utf8Prefix, EndsAtACharacterBoundary) {
  EXPECT_EQ(utf8_prefix("abc", 3), "abc");
  EXPECT_EQ(utf8_prefix("abc", 2), "ab");
  EXPECT_EQ(utf8_prefix("a\xC3\xA9", 2), "a");
  EXPECT_EQ(utf8_prefix("\xF0\x9F\x94\xA5", 3), "");
  EXPECT_EQ(utf8_prefix("abc", 0), "");
}

TEST(Counted, UsesTheSingularForOne) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(size_t{2}, "usable core"), "2 usable cores");
  EXPECT_EQ(counted(0, "process"), "0 processes");
}

TEST(Listed, NamesTheFirstAndCountsTheOthers) {
  const std::vector<std::string> names{"a", "b", "c"};
  EXPECT_EQ(listed(std::vector<std::string>()), "");
  EXPECT_EQ(listed(std::vector<std::string_view>{"a"}, 1), "a");
  EXPECT_EQ(listed(std::vector<std::string_view>{"a", "b"}), "a and b");
  EXPECT_EQ(listed(names, 3), "a, b and c");
  EXPECT_EQ(listed(names, 2), "a, b and 1 other");
  EXPECT_EQ(listed(names, 1), "a and 2 others");
}

TEST(Printable, ReplacesOtherBytesAndCutsToSize) {
  EXPECT_EQ(printable("a\x80\x7f\nb", 4), "a???");
  EXPECT_EQ(printable(" ~", 9, '.'), " ~");
}

TEST(IsOneOf, ComparesWholeTextsAndStartsWithAnyPrefixes) {
  EXPECT_TRUE(is_one_of(std::string_view("left"), {"right", "left"}));
  EXPECT_FALSE(is_one_of(std::string_view("lefty"), {"right", "left"}));
  EXPECT_TRUE(starts_with_any("lefty", {"right", "left"}));
  EXPECT_FALSE(starts_with_any("a left", {"right", "left"}));
}

}  // namespace
}  // namespace muster
