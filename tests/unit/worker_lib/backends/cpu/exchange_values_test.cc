// Values that the members of a group exchange through the store when they set up a backend.
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/store/store_server_harness.h"
#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {
namespace {

using Values = std::vector<std::string>;

GroupSetup setup_of(int rank, int size, uint16_t port) {
  Members members;
  members.me = rank;
  for (int i = 0; i < size; i++)
    members.peers.push_back({GlobalRank{i}, "node", "host", 1, "127.0.0.1"});
  auto store = StoreClient::connect({.host = "127.0.0.1", .port = port});
  EXPECT_TRUE(store.has_value());
  return {.name = "world",
          .members = std::move(members),
          .store = std::move(*store),
          .deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60},
          .interrupted = [] { return std::nullopt; }};
}

// Returns what each member reads if they bring these values.
std::vector<Values> exchanged(const Values& values) {
  const store_test::RunningStore store;
  const int size = static_cast<int>(values.size());
  std::vector<Values> read(values.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; rank++) {
    ranks.emplace_back([&, rank] {
      GroupSetup setup = setup_of(rank, size, store.port());
      const auto all = exchange_through_store(setup, "topic", values[static_cast<size_t>(rank)]);
      if (all) read[static_cast<size_t>(rank)] = *all;
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  return read;
}

TEST(ExchangeThroughStore, EveryMemberReadsAllValues) {
  const Values values{"zero", "one", "two"};
  EXPECT_EQ(exchanged(values), std::vector<Values>(3, values));
}

// A port or a pointer in an address may contain the byte of a newline.
TEST(ExchangeThroughStore, ValuesMayHoldAnyBytes) {
  Values values;
  for (int first = 0; first < 5; first++) {
    std::string value;
    for (int byte = 0; byte < 256; byte++)
      value += static_cast<char>(first + byte);
    values.push_back(value);
  }
  values.emplace_back();
  EXPECT_EQ(exchanged(values), std::vector<Values>(values.size(), values));
}

}  // namespace
}  // namespace muster::worker
