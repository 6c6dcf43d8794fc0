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

// ---- what clients of the store wait for

AwaitedKeys wait_of(size_t clients) {
  AwaitedKeys wait;
  wait.keys = {{"/go/2", {{4, 2, 1, {.pid = 11, .node_rank = 3}}}}, {"/go/3", {}}};
  wait.more = 5;
  for (size_t i = 0; i < clients; ++i)
    wait.waiting.push_back({.pid = static_cast<pid_t>(i), .node_rank = -1});
  return wait;
}

TEST(WatchWire, DecodesWhatClientsWaitFor) {
  const auto waits = decode_awaited(
      encode_awaited({wait_of(2), {.keys = {{"/x"}}, .waiting = {}, .exists = true}}, 16000));
  ASSERT_TRUE(waits);
  ASSERT_EQ(waits->size(), 2U);
  const AwaitedKeys& first = waits->front();
  ASSERT_EQ(first.keys.size(), 2U);
  EXPECT_EQ(first.keys[0].name, "/go/2");
  EXPECT_EQ(first.more, 5U);
  ASSERT_EQ(first.keys[0].siblings.size(), 1U);
  const AwaitedKey::Sibling& sibling = first.keys[0].siblings[0];
  EXPECT_EQ(sibling.place, 4U);
  EXPECT_EQ(sibling.awaited, 2);
  EXPECT_EQ(sibling.number, 1);
  EXPECT_EQ(sibling.creator.pid, 11);
  EXPECT_EQ(sibling.creator.node_rank, 3);
  ASSERT_EQ(first.waiting.size(), 2U);
  EXPECT_EQ(first.waiting[1].pid, 1);
  EXPECT_TRUE(waits->back().waiting.empty());
  EXPECT_TRUE(waits->back().exists);
}

TEST(WatchWire, WhatClientsWaitForFitsIntoOneMessage) {
  const std::string bytes = encode_awaited(std::vector<AwaitedKeys>(8, wait_of(4000)), 16000);
  EXPECT_LE(bytes.size(), 16000U);
  const auto waits = decode_awaited(bytes);
  ASSERT_TRUE(waits);
  ASSERT_FALSE(waits->empty());
  EXPECT_EQ(waits->front().waiting.size(), 1000U);
}

TEST(WatchWire, RefusesMalformedWaits) {
  const std::string bytes = encode_awaited({wait_of(2)}, 16000);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_awaited(bytes.substr(0, size))) << size;
  EXPECT_FALSE(decode_awaited(bytes + "x"));
  EXPECT_FALSE(decode_awaited(encode_awaited({{}}, 16000))) << "without a key";
  AwaitedKeys negative = wait_of(0);
  negative.keys[0].siblings[0].awaited = -1;
  EXPECT_FALSE(decode_awaited(encode_awaited({negative}, 16000)));
}

}  // namespace
}  // namespace muster::hang
