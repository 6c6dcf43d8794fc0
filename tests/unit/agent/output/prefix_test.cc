#include "agent/output/prefix.h"

#include <gtest/gtest.h>

namespace muster {

namespace {

const PrefixFacts kFacts{"trainer", "node-3", 11, 3};

std::string expand(std::string_view text) {
  return tee_prefix(text, kFacts);
}

std::string prefixed(const std::vector<std::string>& feeds) {
  LinePrefixer prefixer;
  std::string out;
  for (const std::string& bytes : feeds)
    prefixer.apply("P:", bytes, out);
  return out;
}

TEST(TeePrefix, DefaultIsRoleAndLocalRank) {
  EXPECT_EQ(expand(""), "[trainer3]:");
}

TEST(TeePrefix, FillsTheFourNames) {
  EXPECT_EQ(expand("${role_name}/${local_rank}/${rank}/${hostname}> "), "trainer/3/11/node-3> ");
  EXPECT_EQ(expand("$role_name-$rank:"), "trainer-11:");
}

TEST(TeePrefix, TwoDollarsAreOne) {
  EXPECT_EQ(expand("$$${rank}$$rank"), "$11$rank");
}

TEST(TeePrefix, UnknownAndBrokenPlaceholdersStayAsTheyAre) {
  for (const char* text : {"${nobody}", "$nobody ", "${rank", "${}", "$", "$ 5", "${1x}", "a$-b",
                           "$rank_x", "${rank x}", "$RANK"}) {
    EXPECT_EQ(expand(text), text);
  }
}

TEST(LogPrefixText, FillsNamesAtOnceAndTimeAtUse) {
  const std::string prefix = log_prefix("{time} {host}:{rank}", kFacts);
  EXPECT_EQ(prefix, std::string(kTimePlaceholder) + " node-3:11 ");
  EXPECT_EQ(with_time(prefix, "12:00:01.500"), "12:00:01.500 node-3:11 ");
  EXPECT_EQ(with_time(prefix, "12:00:02.000"), "12:00:02.000 node-3:11 ");
}

TEST(LogPrefixText, KnowsAllNamesAndTwoBracesAreOne) {
  EXPECT_EQ(log_prefix("{role}{local_rank}{rank}{{time}}", kFacts), "trainer311{time} ");
  EXPECT_EQ(with_time(log_prefix("{{time}}", kFacts), "12:00"), "{time} ");
}

TEST(LogPrefixText, AValueIsNotExpandedAgain) {
  EXPECT_EQ(log_prefix("{host}", {"r", "{host}x", 0, 0}), "{host}x ");
}

TEST(LinePrefixer, PutsThePrefixBeforeEachLine) {
  EXPECT_EQ(prefixed({"a\nb\n"}), "P:a\nP:b\n");
  EXPECT_EQ(prefixed({"\n\n"}), "P:\nP:\n");
}

TEST(LinePrefixer, ALineInPiecesHasOnePrefix) {
  EXPECT_EQ(prefixed({"a", "b", "c\nd", "\n", "", "e"}), "P:abc\nP:d\nP:e");
}

TEST(LinePrefixer, ReturnsAndOtherBytesPassUnchanged) {
  const std::string bytes("\r10%\r20%\0\xff\x80\r\n", 13);
  EXPECT_EQ(prefixed({bytes}), "P:" + bytes);
}

TEST(LinePrefixer, AddsNoNewlineToTheLastLine) {
  EXPECT_EQ(prefixed({"a\nb"}), "P:a\nP:b");
}

}  // namespace

}  // namespace muster
