#include "rendezvous/net/half_open.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/unit/rendezvous/net/addresses.h"

namespace muster {
namespace {

using Id = HalfOpen::Id;

constexpr Instant kStart = Instant(std::chrono::seconds(5));

HalfOpen with(const std::vector<std::pair<Id, const char*>>& connections) {
  HalfOpen table;
  for (const auto& [id, address] : connections)
    table.add(id, ip(address), kStart + Duration(id));
  return table;
}

// All ids, in the order in which they are evicted.
std::vector<Id> order_of(HalfOpen table) {
  std::vector<Id> order;
  while (const auto next = table.next_out()) {
    order.push_back(next->first);
    table.remove(next->first);
  }
  EXPECT_EQ(table.size(), 0u);
  return order;
}

TEST(HalfOpen, EvictsTheOldestOfTheAddressThatHasMost) {
  const HalfOpen table =
      with({{1, "10.0.0.1"}, {2, "10.0.0.2"}, {3, "10.0.0.2"}, {4, "10.0.0.1"}, {5, "10.0.0.2"}});
  ASSERT_TRUE(table.next_out());
  EXPECT_EQ(*table.next_out(),
            (std::pair<Id, HalfOpen::Entry>(2, {ip("10.0.0.2"), kStart + Duration(2)})));
  EXPECT_EQ(order_of(table), (std::vector<Id>{2, 1, 3, 4, 5}));
}

TEST(HalfOpen, EvictsNothingIfEmpty) {
  HalfOpen table;
  EXPECT_FALSE(table.next_out());
  table.add(1, ip("10.0.0.1"), kStart);
  table.remove(1);
  table.remove(1);
  table.said_agent(1);
  EXPECT_FALSE(table.next_out());
}

TEST(HalfOpen, EvictsSilentConnectionsBeforeClaimedAgents) {
  HalfOpen table =
      with({{1, "10.0.0.1"}, {2, "10.0.0.1"}, {3, "10.0.0.1"}, {4, "10.0.0.1"}, {5, "10.0.0.2"}});
  for (const Id id : {Id{1}, Id{2}, Id{3}})
    table.said_agent(id);
  EXPECT_EQ(order_of(table), (std::vector<Id>{4, 5, 1, 2, 3}));
}

// Otherwise each new silent connection would be evicted by the next one.
TEST(HalfOpen, KeepsANewConnectionBesideManyClaimedAgents) {
  HalfOpen table;
  for (Id id = 0; id < 20; ++id) {
    table.add(id, ip("10.0.0.1"), kStart);
    table.said_agent(id);
  }
  for (Id id = 20; id < 24; ++id)
    table.add(id, ip("10.0.0.2"), kStart);
  EXPECT_EQ(table.next_out()->first, 0u);
  table.add(24, ip("10.0.0.2"), kStart);
  EXPECT_EQ(table.next_out()->first, 0u);
  table.add(25, ip("10.0.0.2"), kStart);
  EXPECT_EQ(table.next_out()->first, 20u);
}

TEST(HalfOpen, CountsAllAddressesOfOneMachineTogether) {
  EXPECT_EQ(machine_of(ip("127.8.9.1")), machine_of(ip("::1")));
  EXPECT_EQ(machine_of(ip("fd00:1:2:3::1")), machine_of(ip("fd00:1:2:3:ffff::7")));
  EXPECT_NE(machine_of(ip("fd00:1:2:3::1")), machine_of(ip("fd00:1:2:4::1")));
  EXPECT_NE(machine_of(ip("10.0.0.1")), machine_of(ip("10.0.0.2")));
  const HalfOpen table = with({{1, "10.0.0.1"}, {2, "127.0.0.1"}, {3, "127.1.2.3"}});
  EXPECT_EQ(table.next_out()->first, 2u);
}

TEST(HalfOpen, EvictsTheOldestOfTenThousandAddresses) {
  HalfOpen table;
  for (Id id = 0; id < 10000; ++id) {
    const auto high = static_cast<uint8_t>(id >> 8);
    table.add(id, IpAddress::v4({10, 0, high, static_cast<uint8_t>(id)}), kStart);
    if (table.size() > 4096) table.remove(table.next_out()->first);
  }
  EXPECT_EQ(table.size(), 4096u);
  EXPECT_EQ(table.next_out()->first, 10000u - 4096u);
}

// After any sequence of events, the evicted connection is the oldest of the heaviest group.
TEST(HalfOpen, AgreesWithAnExhaustiveSearch) {
  rc::check([](const std::vector<std::pair<uint8_t, uint8_t>>& steps) {
    struct One {
      int address;
      bool spoke;
    };
    std::map<Id, One> model;
    HalfOpen table;
    Id next_id = 0;
    for (const auto& [what, which] : steps) {
      if (what % 4 < 2 || model.empty()) {
        const int address = which % 5;
        table.add(next_id, IpAddress::v4({10, 0, 0, static_cast<uint8_t>(address)}), kStart);
        model[next_id++] = {address, false};
      } else {
        const auto chosen = std::next(model.begin(), which % static_cast<int>(model.size()));
        if (what % 4 == 2) {
          table.said_agent(chosen->first);
          chosen->second.spoke = true;
        } else {
          table.remove(chosen->first);
          model.erase(chosen);
        }
      }
      std::map<std::pair<int, bool>, std::pair<size_t, Id>> groups;  // Weight and oldest.
      for (const auto& [id, one] : model) {
        const auto group = groups.try_emplace({one.address, one.spoke}, size_t{0}, id).first;
        group->second.first += one.spoke ? 1 : 4;
      }
      RC_ASSERT(table.size() == model.size());
      const auto next = table.next_out();
      RC_ASSERT(next.has_value() == !model.empty());
      if (!next) continue;
      const auto heaviest = std::max_element(groups.begin(), groups.end(), [](auto& a, auto& b) {
        return std::pair(a.second.first, b.second.second) <
               std::pair(b.second.first, a.second.second);
      });
      RC_ASSERT(next->first == heaviest->second.second);
    }
  });
}

}  // namespace
}  // namespace muster
