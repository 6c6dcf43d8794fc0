#include "worker_lib/backends/store_exchange.h"

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/worker_lib/backends/backend_ranks.h"

namespace muster::worker {
namespace {

using Values = std::vector<std::string>;

Failure failure_of_exchange(GroupSetup setup) {
  const auto values = exchange_through_store(setup, "address", "mine");
  return values ? Failure{ErrorCode::system, "it succeeded"} : values.error();
}

// Makes the members global ranks 30, 29, 28 ..., in this order.
void rank_in_descending_order(GroupSetup& setup) {
  for (int rank = 0; rank < setup.members.size(); ++rank) {
    Peer& peer = setup.members.peers[static_cast<size_t>(rank)];
    peer.rank = GlobalRank{30 - rank};
    peer.pid = 100 + rank;
  }
  setup.limit = std::chrono::seconds(2);
}

// Two of twelve ranks arrive; rank 1 of another group waits for a first member that writes nothing.
TEST(StoreExchange, NamesRanksThatDoNotArrive) {
  BackendRanks ranks(12);
  BackendRanks others(2);
  ranks.adjust = others.adjust = rank_in_descending_order;
  std::array<Failure, 2> met;
  std::thread other([&] {
    GroupSetup setup = others.setup_of(1, Deadline::min());
    ASSERT_TRUE(setup.store.set("address/0", "it came"));
    met[1] = failure_of_exchange(setup);
  });
  GroupSetup setup = ranks.setup_of(0, Deadline::min());
  ASSERT_TRUE(setup.store.set("address/3", "it came"));
  met[0] = failure_of_exchange(setup);
  other.join();
  EXPECT_EQ(
      met[0],
      (Failure{ErrorCode::timeout,
               "rank 29 (testhost, pid 101), rank 28 (testhost, pid 102), rank 26 (testhost, "
               "pid 104), rank 25 (testhost, pid 105), rank 24 (testhost, pid 106), rank 23 "
               "(testhost, pid 107), rank 22 (testhost, pid 108), rank 21 (testhost, pid "
               "109) and 2 others did not arrive to set up the group's connections within 2 s; "
               "check what they are doing instead, or give a longer timeout",
               {{19}, {20}, {21}, {22}, {23}, {24}, {25}, {26}, {28}, {29}}}));
  EXPECT_EQ(met[1].message,
            "the last rank did not arrive to set up the group's connections within 2 s; check what "
            "they are doing instead, or give a longer timeout");
  EXPECT_EQ(met[1].ranks, std::vector<GlobalRank>{});
}

TEST(StoreExchange, FailsWithTheReasonThatInterruptsIt) {
  const BackendRanks ranks(2);
  const Failure why{ErrorCode::peer_failed, "rank 1 died", {{1}}};
  for (const int rank : {0, 1}) {
    GroupSetup setup = ranks.setup_of(rank, after(std::chrono::seconds{60}));
    setup.interrupted = [&] { return why; };
    EXPECT_EQ(failure_of_exchange(std::move(setup)), why) << "rank " << rank;
  }
}

TEST(StoreExchange, ReportsAFailedStoreAndNotAMissingRank) {
  std::optional<BackendRanks> ranks(std::in_place, 2);
  GroupSetup setup = ranks->setup_of(1, after(std::chrono::seconds{60}));
  ranks.reset();
  const Failure failure = failure_of_exchange(std::move(setup));
  EXPECT_EQ(failure.code, ErrorCode::rendezvous);
  EXPECT_TRUE(failure.message.starts_with("the store failed while the group was made: "))
      << failure.message;
  EXPECT_EQ(failure.ranks, std::vector<GlobalRank>{});
}

TEST(StoreExchange, RefusesValuesOfAnotherJob) {
  const BackendRanks ranks(2);
  GroupSetup setup = ranks.setup_of(1, after(std::chrono::seconds{60}));
  ASSERT_TRUE(setup.store.set("address/all", "4:four5:five"));
  EXPECT_EQ(failure_of_exchange(std::move(setup)),
            (Failure{ErrorCode::rendezvous,
                     "rank 0 of group world wrote something other than the address of all ranks to "
                     "the store; give every job a store, or a prefix, of its own"}));
}

// A port or a pointer in an address may contain the byte of a newline.
TEST(StoreExchange, EveryMemberReadsTheValuesOfAllWhateverTheirBytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; byte++)
    bytes += static_cast<char>(byte);
  const Values values{"zero", bytes, "", bytes + "2:"};
  const BackendRanks ranks(4);
  std::vector<Values> read(4);
  ranks.each([&](int rank) {
    GroupSetup setup = ranks.setup_of(rank, after(std::chrono::seconds{60}));
    const auto at = static_cast<size_t>(rank);
    if (const auto all = exchange_through_store(setup, "topic", values[at])) read[at] = *all;
  });
  EXPECT_EQ(read, std::vector<Values>(4, values));
}

// A group of one needs no other rank, and topics do not mix.
TEST(StoreExchange, EveryTopicHasItsOwnValues) {
  const BackendRanks ranks(1);
  GroupSetup setup = ranks.setup_of(0, after(std::chrono::seconds{60}));
  EXPECT_EQ(exchange_through_store(setup, "address", "here").value(), Values{"here"});
  EXPECT_EQ(exchange_through_store(setup, "id", std::string("\0\n", 2)).value(),
            (Values{std::string("\0\n", 2)}));
}

}  // namespace
}  // namespace muster::worker
