#include <gtest/gtest.h>

#include "agent/output/prefix.h"

namespace muster {
namespace {

std::string filtered(std::vector<std::string> needles, const std::vector<std::string>& feeds) {
  LineFilter filter(std::move(needles));
  std::string out;
  for (const std::string& bytes : feeds)
    filter.feed("[r0]:", bytes, out);
  filter.finish("[r0]:", out);
  return out;
}

TEST(LineFilter, KeepsLinesWithAnyNeedle) {
  EXPECT_EQ(filtered({"err", "warn"}, {"an err\nfine\nwarning\n"}), "[r0]:an err\n[r0]:warning\n");
}

TEST(LineFilter, MatchesBytesAndCase) {
  EXPECT_EQ(filtered({"Err"}, {"err\nErr\n"}), "[r0]:Err\n");
  EXPECT_EQ(filtered({"\xff"}, {"a\xff\nb\n"}), "[r0]:a\xff\n");
}

TEST(LineFilter, JudgesALineThatComesInPiecesOnce) {
  EXPECT_EQ(filtered({"needle"}, {"one nee", "dle", " end\nother", "\n"}), "[r0]:one needle end\n");
}

TEST(LineFilter, ALastLineGetsItsNewline) {
  EXPECT_EQ(filtered({"a"}, {"a\nba"}), "[r0]:a\n[r0]:ba\n");
}

TEST(LineFilter, AnEmptyNeedleMatchesEveryLine) {
  EXPECT_EQ(filtered({""}, {"a\n\nb\n"}), "[r0]:a\n[r0]:\n[r0]:b\n");
}

TEST(LineFilter, ALineWithoutEndNeedsBoundedMemory) {
  LineFilter filter({"x"});
  const std::string chunk(LineFilter::kLineMax, 'x');
  std::string out;
  filter.feed("", chunk, out);
  EXPECT_EQ(out, chunk + "\n");
}

}  // namespace

}  // namespace muster
