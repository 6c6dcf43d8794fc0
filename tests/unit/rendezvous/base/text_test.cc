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

TEST(WholeNumber, IsTheWholeText) {
  EXPECT_EQ(whole_number<int>("007"), 7);
  EXPECT_EQ(whole_number<int>("-1"), -1);
  EXPECT_EQ(whole_number<uint8_t>("255"), 255);
  EXPECT_EQ(whole_number<uint8_t>("ff", 16), 255);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1.0", "0x1", "256", "x"})
    EXPECT_EQ(whole_number<uint8_t>(text), std::nullopt) << text;
}

}  // namespace
}  // namespace muster
