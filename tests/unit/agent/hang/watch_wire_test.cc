#include "agent/hang/watch_wire.h"

#include <numeric>

#include <gtest/gtest.h>

namespace muster::hang {
namespace {

TEST(WatchWire, DecodesOnlyTheRanksOfTheReader) {
  const std::string bytes = encode_ranks({0, 1, 2, 7, 8, 4000});
  EXPECT_EQ(decode_ranks(bytes, 0, 5000), (std::vector<int>{0, 1, 2, 7, 8, 4000}));
  EXPECT_EQ(decode_ranks(bytes, 2, 7), (std::vector<int>{2, 7}));
  EXPECT_EQ(decode_ranks(bytes, 9, 20), std::vector<int>());
  EXPECT_EQ(decode_ranks("", 0, 9), std::vector<int>());
}

TEST(WatchWire, AnyListOfRanksFitsIntoOneMessage) {
  std::vector<int> all(8000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(decode_ranks(encode_ranks(all), 0, 7999), all);
  std::vector<int> even;
  for (int rank = 0; rank < 8000; rank += 2)
    even.push_back(rank);
  const std::string bytes = encode_ranks(even);
  EXPECT_LE(bytes.size(), 16000U);
  EXPECT_EQ(decode_ranks(bytes, 0, 9), (std::vector<int>{0, 2, 4, 6, 8}));
}

TEST(WatchWire, RefusesAMalformedListOfRanks) {
  const std::string bytes = encode_ranks({3, 4});
  EXPECT_EQ(decode_ranks(bytes.substr(1), 0, 9), std::nullopt);
  EXPECT_EQ(decode_ranks(std::string(8, '\xff'), 0, 9), std::nullopt) << "negative";
  EXPECT_EQ(decode_ranks(encode_ranks({9}).substr(0, 4) + encode_ranks({3}).substr(0, 4), 0, 9),
            std::nullopt)
      << "backwards";
  EXPECT_EQ(decode_ranks(std::string(1 << 20, '\0'), 0, 9), std::nullopt) << "too long";
}

TEST(WatchWire, DecodesAnUpdateWithItsNumber) {
  const std::string bytes = encode_news({7, 3, "rank 5 is late"});
  const auto news = decode_news(bytes);
  ASSERT_TRUE(news);
  EXPECT_EQ(news->number, 7U);
  EXPECT_EQ(news->oldest, 3U);
  EXPECT_EQ(news->news, "rank 5 is late");
  EXPECT_FALSE(decode_news(bytes.substr(0, 15)));
}

}  // namespace
}  // namespace muster::hang
