#include "worker_lib/backends/cpu/p2p_matching.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

RequestPtr posted_receive(int peer, int tag) {
  auto request = std::make_shared<TransferRequest>();
  request->transfer = {.kind = OpKind::recv, .peer = peer, .tag = tag};
  return request;
}

// ---- any order of messages and receives

struct Arrival {
  bool is_receive;
  int peer;
  int tag;
};

// Matched events, by their numbers: (message, receive).
using Pairs = std::vector<std::pair<int, int>>;

// Uses the matching as a rank does: the second event of a pair looks for the first.
Pairs pairs_of(const std::vector<Arrival>& events) {
  TransferMatching matching;
  std::vector<RequestPtr> receives(events.size());
  Pairs pairs;
  for (int now = 0; now < static_cast<int>(events.size()); ++now) {
    const Arrival& event = events[static_cast<size_t>(now)];
    if (event.is_receive) {
      if (const EarlyPtr early = matching.take_early(event.peer, event.tag)) {
        pairs.emplace_back(static_cast<int>(early->head.bytes), now);
      } else {
        receives[static_cast<size_t>(now)] = posted_receive(event.peer, event.tag);
        matching.post(receives[static_cast<size_t>(now)]);
      }
    } else if (const RequestPtr taken = matching.take_posted(event.peer, event.tag)) {
      const auto found = std::ranges::find(receives, taken);
      pairs.emplace_back(now, static_cast<int>(found - receives.begin()));
    } else {
      // The number of bytes identifies the message.
      matching.add_early(event.peer, {.tag = event.tag, .bytes = static_cast<uint64_t>(now)});
    }
  }
  return pairs;
}

// The rule: each event matches the first earlier one that fits.
Pairs pairs_by_the_rule(const std::vector<Arrival>& events) {
  Pairs pairs;
  std::vector<bool> used(events.size());
  for (size_t now = 0; now < events.size(); ++now) {
    for (size_t before = 0; before < now && !used[now]; ++before) {
      const auto& [message, receive] =
          events[now].is_receive ? std::pair(before, now) : std::pair(now, before);
      const bool fits = events[before].is_receive != events[now].is_receive && !used[before] &&
                        events[message].tag == events[receive].tag &&
                        (events[receive].peer < 0 || events[receive].peer == events[message].peer);
      if (!fits) continue;
      used[before] = used[now] = true;
      pairs.emplace_back(static_cast<int>(message), static_cast<int>(receive));
    }
  }
  return pairs;
}

RC_GTEST_PROP(P2pMatching, MatchesByTheRuleInAnyOrderOfEvents, ()) {
  std::vector<Arrival> events;
  for (int left = *rc::gen::inRange(0, 40); left > 0; --left) {
    const bool is_receive = *rc::gen::arbitrary<bool>();
    events.push_back(
        {is_receive, *rc::gen::inRange(is_receive ? -1 : 0, 3), *rc::gen::inRange(-1, 2)});
  }
  RC_ASSERT(pairs_of(events) == pairs_by_the_rule(events));
}

// ---- what is kept

TEST(P2pMatching, KeepsPostedReceivesInCallOrderUntilTakenOrForgotten) {
  TransferMatching matching;
  EXPECT_FALSE(matching.awaits(0));
  const RequestPtr first = posted_receive(0, 1);
  const RequestPtr second = posted_receive(2, 1);
  const RequestPtr third = posted_receive(0, 1);
  for (const RequestPtr& one : {first, second, third})
    matching.post(one);
  EXPECT_EQ(matching.take_posted(2, 1), second);
  EXPECT_EQ(matching.take_posted(0, 1), first);
  EXPECT_TRUE(matching.awaits(0));
  EXPECT_FALSE(matching.awaits(2));
  matching.forget_posted();
  EXPECT_FALSE(matching.awaits(0));
  EXPECT_EQ(matching.take_posted(0, 1), nullptr);
}

TEST(P2pMatching, AReceiveFromAnyAwaitsEveryRank) {
  TransferMatching matching;
  matching.post(posted_receive(-1, 1));
  EXPECT_TRUE(matching.awaits(0));
  EXPECT_TRUE(matching.awaits(1000));
  EXPECT_FALSE(matching.is_posted(0));
  EXPECT_TRUE(matching.is_posted(-1));
}

TEST(P2pMatching, AnEarlyMessageHasRoomForItsDataAndIsTakenOnce) {
  TransferMatching matching;
  const EarlyPtr five = matching.add_early(3, {.tag = 1, .bytes = 5});
  const EarlyPtr empty = matching.add_early(3, {.tag = 1, .bytes = 0});
  EXPECT_EQ(five->from, 3);
  EXPECT_EQ(five->data.size(), 5U);
  EXPECT_FALSE(five->complete());
  EXPECT_TRUE(empty->complete());
  five->got = 5;
  EXPECT_TRUE(five->complete());
  EXPECT_EQ(matching.take_early(3, 1), five);
  EXPECT_EQ(matching.take_early(-1, 1), empty);
  EXPECT_EQ(matching.take_early(3, 1), nullptr);
  EXPECT_EQ(matching.early().size(), 0U);
}

TEST(P2pMatching, ARequestKnowsItsBytesAndItsDirection) {
  TransferRequest request;
  request.transfer = {.kind = OpKind::send, .count = 3, .dtype = DType::float64};
  EXPECT_EQ(request.bytes(), 24U);
  EXPECT_TRUE(request.is_send());
  request.transfer.kind = OpKind::recv;
  EXPECT_FALSE(request.is_send());
}

}  // namespace
}  // namespace muster::worker
