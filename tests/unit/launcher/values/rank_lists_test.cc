#include "launcher/values/rank_lists.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using Ranks = std::vector<int>;
using Ranges = std::vector<std::pair<int, int>>;

template <typename T>
std::string list_reason(const Parsed<T>& parsed) {
  return parsed ? "no problem" : parsed.error();
}

StreamsByRank for_all(Streams streams) {
  return {streams, {}};
}
StreamsByRank by_rank(std::map<int, Streams> streams) {
  return {Streams::none, std::move(streams)};
}

TEST(StreamsText, IsOneDigitForAll) {
  const std::map<std::string, Streams> digits{
      {"0", Streams::none}, {"1", Streams::out}, {"2", Streams::err}, {"3", Streams::both}};
  for (const auto& [text, streams] : digits) {
    EXPECT_EQ(parse_streams(text), Parsed<StreamsByRank>(for_all(streams))) << text;
  }
}

TEST(StreamsText, IsAMapByLocalRank) {
  const std::map<std::string, StreamsByRank> maps{
      {"0:1", by_rank({{0, Streams::out}})},
      {"0:1,1:3", by_rank({{0, Streams::out}, {1, Streams::both}})},
      {"2:0,7:2", by_rank({{2, Streams::none}, {7, Streams::err}})},
      {"1:1,1:2", by_rank({{1, Streams::err}})},
      {"10:1,127:3", by_rank({{10, Streams::out}, {127, Streams::both}})},
  };
  for (const auto& [text, streams] : maps) {
    EXPECT_EQ(parse_streams(text), Parsed<StreamsByRank>(streams)) << text;
  }
}

TEST(StreamsText, GivesNothingToRanksThatAreNotNamed) {
  const StreamsByRank streams = parse_streams("1:3").value();
  EXPECT_EQ(streams.of(0), Streams::none);
  EXPECT_EQ(streams.of(1), Streams::both);
  EXPECT_EQ(parse_streams("2").value().of(5), Streams::err);
}

TEST(StreamsText, RefusesAnyOtherTextAndShowsTheWrongPart) {
  const std::map<std::string, std::string> parts{
      {"", "''"},         {"4", "4"},
      {"11", "11"},       {"-1", "-1"},
      {"0:1,", "''"},     {"0:1,1", "1"},
      {"1,0:1", "1"},     {"0:4", "0:4"},
      {"0:", "0:"},       {":1", ":1"},
      {"0:1:2", "0:1:2"}, {" 3", "' 3'"},
      {"3 ", "'3 '"},     {"0:1, 1:1", "' 1:1'"},
      {"-1:3", "-1:3"},   {"x", "x"},
      {"both", "both"},   {"99999999999:1", "99999999999:1"},
  };
  for (const auto& [text, part] : parts) {
    EXPECT_EQ(list_reason(parse_streams(text)),
              part +
                  " is not understood; give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or "
                  "RANK:0..3,RANK:0..3")
        << text;
  }
}

RC_GTEST_PROP(StreamsText, ReadsBackAnyMap, ()) {
  const auto digits = *rc::gen::nonEmpty(
      rc::gen::container<std::map<int, int>>(rc::gen::inRange(0, 1000), rc::gen::inRange(0, 4)));
  std::string text;
  StreamsByRank expected;
  for (const auto& [rank, digit] : digits) {
    text += (text.empty() ? "" : ",") + std::to_string(rank) + ":" + std::to_string(digit);
    expected.by_rank[rank] = static_cast<Streams>(digit);
  }
  RC_ASSERT((parse_streams(text).value() == expected));
}

TEST(LocalRanksText, IsSortedAndEachRankCountsOnce) {
  const std::map<std::string, Ranks> lists{
      {"0", {0}}, {"2,0", {0, 2}}, {" 1 , 3 ", {1, 3}}, {"5,5,1", {1, 5}}, {"1_0", {10}}};
  for (const auto& [text, ranks] : lists) {
    EXPECT_EQ(parse_local_ranks(text), Parsed<Ranks>(ranks)) << text;
  }
}

TEST(LocalRanksText, NamesTheItemThatIsNoRank) {
  const std::map<std::string, std::string> items{{"", "''"},   {"0,", "''"}, {",1", "''"},
                                                 {"0,x", "x"}, {"-1", "-1"}, {"0-3", "0-3"}};
  for (const auto& [text, item] : items) {
    EXPECT_EQ(list_reason(parse_local_ranks(text)),
              item + " is not a local rank; give for example 0,2")
        << text;
  }
}

TEST(RankRangesText, IsRanksAndRanges) {
  const std::map<std::string, Ranges> lists{
      {"0", {{0, 0}}},
      {"0,8-15", {{0, 0}, {8, 15}}},
      {" 3 - 4 , 1 ", {{3, 4}, {1, 1}}},
      {"7-7", {{7, 7}}},
  };
  for (const auto& [text, ranges] : lists) {
    EXPECT_EQ(parse_rank_ranges(text), Parsed<Ranges>(ranges)) << text;
  }
}

TEST(RankRangesText, NamesTheItemThatIsNeitherRankNorRange) {
  for (const char* item : {"x", "-1", "1-", "1-2-3", "1:2", "99999999999"}) {
    EXPECT_EQ(list_reason(parse_rank_ranges(std::string("0,") + item)),
              std::string(item) + " is neither a rank nor a range; give for example 0,8-15");
  }
  EXPECT_EQ(list_reason(parse_rank_ranges("")),
            "'' is neither a rank nor a range; give for example 0,8-15");
  EXPECT_EQ(list_reason(parse_rank_ranges("9-8")), "the range 9-8 ends before it begins; give 8-9");
}

}  // namespace
}  // namespace muster
