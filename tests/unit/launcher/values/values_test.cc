#include "launcher/values/values.h"

#include <array>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using Strings = std::vector<std::string>;

TEST(ParseInt, ReadsNumbersAsPythonDoes) {
  const std::map<std::string, int> numbers{
      {"0", 0},
      {"7", 7},
      {"-3", -3},
      {"+4", 4},
      {" 12 ", 12},
      {"\t5\n", 5},
      {"1_000", 1000},
      {"007", 7},
      {"-0", 0},
      {"1_2_3", 123},
      {"2147483647", kIntMax},
      {"-2147483648", -kIntMax - 1},
  };
  for (const auto& [text, number] : numbers) {
    EXPECT_EQ(parse_int(text, -kIntMax - 1), Parsed<int>(number)) << text;
  }
}

TEST(ParseInt, RefusesWhatPythonRefuses) {
  for (const char* text : {"", " ", "x", "1x", "x1", "1.0", "0x10", "--1", "+-1", "_1", "1_",
                           "1__0", "1 2", "-", "+", "1e3", "- 1"}) {
    EXPECT_EQ(parse_int(text, 0), Parsed<int>(problem("not a whole number; give 0 or more")))
        << text;
  }
}

TEST(ParseInt, NamesTheRangeThatWasLeft) {
  EXPECT_EQ(parse_int("-1", 0), Parsed<int>(problem("out of range; give 0 or more")));
  EXPECT_EQ(parse_int("0", 1), Parsed<int>(problem("out of range; give 1 or more")));
  EXPECT_EQ(parse_int("8", 1, 7), Parsed<int>(problem("out of range; give 1 to 7")));
  EXPECT_EQ(parse_int("0", 1, 7), Parsed<int>(problem("out of range; give 1 to 7")));
  EXPECT_EQ(parse_int("x", 1, 7), Parsed<int>(problem("not a whole number; give 1 to 7")));
}

TEST(ParseInt, DoesNotOverflow) {
  const Parsed<int> too_large(problem("out of range; give 0 to 2147483647"));
  EXPECT_EQ(parse_int("2147483648", 0), too_large);
  EXPECT_EQ(parse_int("99999999999999999999999999999", 0), too_large);
  EXPECT_EQ(parse_int("-99999999999999999999999999999", 0),
            Parsed<int>(problem("out of range; give 0 or more")));
}

RC_GTEST_PROP(ParseInt, ReadsBackWhatWasPrinted, (int number)) {
  RC_ASSERT(parse_int(std::to_string(number), -kIntMax - 1).value() == number);
}

TEST(ParseSeconds, ReadsFractionsAndExponents) {
  const std::map<std::string, double> numbers{
      {"0", 0},      {"30", 30}, {"0.5", 0.5},  {".5", 0.5},
      {"1e-1", 0.1}, {" 2 ", 2}, {"+1.5", 1.5}, {"1000000000", 1e9},
  };
  for (const auto& [text, number] : numbers) {
    EXPECT_EQ(parse_seconds(text, true), Parsed<double>(number)) << text;
  }
}

TEST(ParseSeconds, RefusesWhatIsNoDuration) {
  const Parsed<double> not_a_number(problem("not a number; give seconds, 0 or more"));
  for (const char* text : {"", "x", "1s", "nan", "inf", "-inf", "1 2", "++1", "1e999"}) {
    EXPECT_EQ(parse_seconds(text, true), not_a_number) << text;
  }
  EXPECT_EQ(parse_seconds("-0.1", true),
            Parsed<double>(problem("out of range; give seconds, 0 or more")));
  EXPECT_EQ(parse_seconds("2e9", true),
            Parsed<double>(problem("out of range; give at most 1000000000 seconds")));
}

TEST(ParseSeconds, TakesZeroOnlyIfItIsAllowed) {
  EXPECT_EQ(parse_seconds("0", false),
            Parsed<double>(problem("out of range; give seconds, more than 0")));
  EXPECT_EQ(parse_seconds("x", false),
            Parsed<double>(problem("not a number; give seconds, more than 0")));
}

TEST(ParseChoice, IsExact) {
  static constexpr std::array<std::string_view, 2> kChoices{"shared", "exclusive"};
  EXPECT_EQ(parse_choice("shared", kChoices), Parsed<std::string>("shared"));
  for (const char* text : {"", "Shared", "share", " shared"}) {
    EXPECT_EQ(parse_choice(text, kChoices),
              Parsed<std::string>(problem("unknown; give one of shared, exclusive")))
        << text;
  }
}

TEST(EscapedList, SplitsAtSingleCommas) {
  const std::map<std::string, Strings> lists{
      {"", {}},
      {"a", {"a"}},
      {"a,b", {"a", "b"}},
      {" a , b ", {"a", "b"}},
      {"a,,b", {"a,b"}},
      {"a,,,b", {"a,", "b"}},
      {"a,,,,b", {"a,,b"}},
      {",", {}},
      {",a,", {"a"}},
      {",,", {","}},
      {"loss = 0.1,,0.2, step", {"loss = 0.1,0.2", "step"}},
  };
  for (const auto& [text, items] : lists)
    EXPECT_EQ(parse_escaped_list(text), items) << text;
}

RC_GTEST_PROP(EscapedList, ReadsBackWhatWasEscaped, ()) {
  const auto word =
      rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc=[]"))));
  const Strings items = *rc::gen::container<Strings>(word);
  std::string text;
  for (const std::string& item : items)
    text += (text.empty() ? "" : ",") + item;
  RC_ASSERT(parse_escaped_list(text) == items);
}

TEST(Shown, KeepsAMessageOnOneLine) {
  EXPECT_EQ(shown("plain"), "plain");
  EXPECT_EQ(shown(""), "''");
  EXPECT_EQ(shown("a b"), "'a b'");
  EXPECT_EQ(shown("a\nb"), "a\\nb");
  EXPECT_EQ(shown("\x1b[31m\x7f"), "\\x1b[31m\\x7f");
  EXPECT_EQ(shown("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
}

TEST(Shown, CutsLongValues) {
  EXPECT_EQ(shown(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(shown(std::string(81, 'x')), std::string(80, 'x') + "...");
}

TEST(Nearest, CountsEdits) {
  static constexpr std::array<std::string_view, 3> kWords{"tee", "redirects", "nnodes"};
  const auto check = [](std::string_view word, std::string_view expected, std::size_t distance) {
    const Nearest found = nearest(word, kWords);
    EXPECT_EQ(found.word, expected) << word;
    EXPECT_EQ(found.distance, distance) << word;
  };
  check("tee", "tee", 1);
  check("te", "tee", 1);
  check("redirct", "redirects", 2);
  check("redi", "redirects", 1);
  check("nodes", "nnodes", 1);
  check("ndones", "nnodes", 2);
  check("", "tee", 3);
}

TEST(Nearest, IsEmptyIfThereAreNoWords) {
  EXPECT_EQ(nearest("word", {}).word, "");
}

}  // namespace
}  // namespace muster
