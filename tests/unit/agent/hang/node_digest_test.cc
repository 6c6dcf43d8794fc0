// A node's message arrives as sent, except that ages are whole microseconds and old calls share one
// age; it is small; and any other bytes are refused or harmless.
#include "agent/hang/node_digest.h"

#include <algorithm>
#include <climits>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/base/prng.h"

namespace muster::hang {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Instant kSaid{seconds(100'000)};

// Random content, also disordered and out of range, as from the rings of hostile workers.
class AnyNews {
 public:
  explicit AnyNews(uint64_t seed) : prng_(seed) {}

  NodeDigest digest() {
    NodeDigest digest{.host = text(),
                      .heard = prng_.below(9),
                      .jumps = prng_.next(),
                      .is_suspended = prng_.chance(1, 2),
                      .ranks = {}};
    int rank = static_cast<int>(prng_.below(10));
    for (uint64_t i = prng_.below(6); i > 0; --i) {
      RankNews news = of_rank(rank);
      // Some ranks share a state.
      if (news.digest && !digest.ranks.empty() && prng_.chance(1, 2)) {
        const std::optional<RankDigest>& other = digest.ranks.back().digest;
        if (other) news.digest = alike(*other, rank);
      }
      digest.ranks.push_back(std::move(news));
      rank += 1 + static_cast<int>(prng_.below(1000));
    }
    return digest;
  }

 private:
  std::string text() {
    return std::string(prng_.below(20), static_cast<char>('a' + prng_.below(3)));
  }
  // Occasionally in the future.
  Instant instant() {
    return kSaid + milliseconds(5) - std::chrono::nanoseconds(prng_.below(3'600'000'000'000));
  }
  RankDigest alike(RankDigest digest, int rank) {
    digest.rank = rank;
    digest.at = instant();
    for (GroupDigest& group : digest.groups) {
      group.own_rank = static_cast<int>(prng_.next());
      group.since = instant();
      for (CallDigest& call : group.calls)
        call.called = instant();
    }
    return digest;
  }
  std::vector<int> members() {
    std::vector<int> ranks(prng_.below(50));
    const int step = static_cast<int>(prng_.below(9)) - 4;
    for (size_t i = 0; i < ranks.size(); ++i)
      ranks[i] = prng_.chance(1, 9) ? static_cast<int>(prng_.next() >> 33)
                                    : 1000 + step * static_cast<int>(i);
    return ranks;
  }
  ring::Call call() {
    return {.kind = static_cast<ring::CallKind>(prng_.below(14)),
            .type = static_cast<ring::ElementType>(prng_.below(18)),
            .reduction = static_cast<ring::Reduction>(prng_.below(10)),
            .is_v = prng_.chance(1, 2),
            .is_synchronous = prng_.chance(1, 2),
            .root = static_cast<int32_t>(prng_.next()),
            .count = prng_.next()};
  }
  GroupDigest group() {
    GroupDigest group{.id = text(),
                      .name = text(),
                      .ranks = members(),
                      .size = static_cast<int>(prng_.next()),
                      .own_rank = static_cast<int>(prng_.next()),
                      .phase = static_cast<GroupPhase>(prng_.below(4)),
                      .since = instant(),
                      .called = prng_.chance(1, 9) ? prng_.next() : prng_.below(80),
                      .completed = prng_.below(80),
                      .completion_is_late = prng_.chance(1, 2),
                      .completion_is_unknown = prng_.chance(1, 2),
                      .is_on_device = prng_.chance(1, 2),
                      .completion_is_unseen = prng_.chance(1, 2),
                      .calls = {},
                      .hashes = {}};
    for (uint64_t i = prng_.below(12); i > 0; --i)
      group.calls.push_back({prng_.below(80), call(), instant(), text(), prng_.chance(1, 2)});
    for (uint64_t i = prng_.below(4); i > 0; --i)
      group.hashes.push_back({prng_.next(), prng_.next()});
    return group;
  }
  RankDigest of_ring(int rank) {
    RankDigest digest;
    digest.rank = rank;
    digest.generation = prng_.below(3);
    digest.source = static_cast<int>(prng_.below(4));
    digest.at = instant();
    for (uint64_t i = prng_.below(4); i > 0; --i)
      digest.groups.push_back(group());
    for (uint64_t i = prng_.below(4); i > 0; --i)
      digest.messages.push_back({.group = text(),
                                 .peer = static_cast<int>(prng_.next()),
                                 .is_recv = prng_.chance(1, 2),
                                 .called = 1 + prng_.below(50),
                                 .completed = 0,
                                 .is_on_device = prng_.chance(1, 2),
                                 .completion_is_unseen = prng_.chance(1, 2),
                                 .is_synchronous = prng_.chance(1, 2),
                                 .called_at = instant(),
                                 .site = text()});
    digest.section = text();
    digest.has_failed = prng_.chance(1, 2);
    digest.is_last = prng_.chance(1, 2);
    return digest;
  }
  RankNews of_rank(int rank) {
    RankNews news;
    news.rank = rank;
    news.pid = static_cast<pid_t>(prng_.next() >> 33);
    news.device = text();
    if (prng_.chance(3, 4)) {
      news.version = prng_.next();
      news.at = instant();
      if (prng_.chance(3, 4)) news.digest = of_ring(rank);
    }
    if (prng_.chance(1, 2)) news.life = RankLife{life(), instant()};
    if (prng_.chance(1, 3)) news.code = static_cast<int>(prng_.below(300)) - 150;
    return news;
  }

  Life life() {
    Life seen{.state = static_cast<LifeState>(prng_.below(10)),
              .sign = static_cast<LifeSign>(prng_.below(8)),
              .rate = prng_.next(),
              .target = text(),
              .wchan = text(),
              .thawing = text(),
              .task = {static_cast<pid_t>(prng_.below(1000)), text(), prng_.chance(1, 2)}};
    if (prng_.chance(1, 3)) return seen;
    seen.call = SystemCall{.is_known = prng_.chance(1, 2),
                           .name = text(),
                           .waits_for = static_cast<WaitsFor>(prng_.below(4)),
                           .descriptor = static_cast<int>(prng_.below(100)) - 1,
                           .child = static_cast<pid_t>(prng_.below(100)),
                           .has_timer = prng_.chance(1, 2)};
    if (prng_.chance(1, 2)) seen.call->timeout = milliseconds(prng_.below(5000));
    return seen;
  }

  Prng prng_;
};

// What survives encoding, if the reader's clock is the sender's.
Instant as_sent(Instant at) {
  return kSaid - microseconds(std::max<int64_t>((kSaid - at) / microseconds(1), 0));
}

RankDigest as_sent(RankDigest digest) {
  digest.at = as_sent(digest.at);
  for (GroupDigest& group : digest.groups) {
    group.since = as_sent(group.since);
    Instant oldest = Instant::max();
    const auto is_dated = [&](size_t i) {
      return group.calls[i].ordinal > group.completed || i + 4 >= group.calls.size();
    };
    for (size_t i = 0; i < group.calls.size(); ++i) {
      group.calls[i].called = as_sent(group.calls[i].called);
      if (is_dated(i)) oldest = std::min(oldest, group.calls[i].called);
    }
    for (size_t i = 0; i < group.calls.size(); ++i) {
      if (!is_dated(i)) group.calls[i].called = oldest;
    }
  }
  for (MessageDigest& message : digest.messages)
    message.called_at = as_sent(message.called_at);
  return digest;
}

NodeDigest as_sent(NodeDigest digest) {
  for (RankNews& news : digest.ranks) {
    if (news.version > 0) news.at = as_sent(news.at);
    if (news.digest) news.digest = as_sent(*news.digest);
    if (news.life) news.life->at = as_sent(news.life->at);
  }
  return digest;
}

RC_GTEST_PROP(NodeDigest, ArrivesAsItWasSent, (uint64_t seed)) {
  const NodeDigest digest = AnyNews(seed).digest();
  const auto arrived = decode_node_digest(encode(digest, kSaid), kSaid);
  RC_ASSERT(arrived.has_value());
  RC_ASSERT(*arrived == as_sent(digest));
}

RC_GTEST_PROP(NodeDigest, IsRefusedIfCutShort, (uint64_t seed)) {
  const std::string bytes = encode(AnyNews(seed).digest(), kSaid);
  Prng prng(seed);
  for (int i = 0; i < 20; ++i)
    RC_ASSERT(!decode_node_digest(bytes.substr(0, prng.below(bytes.size())), kSaid));
  RC_ASSERT(!decode_node_digest(bytes + '\0', kSaid));
}

RC_GTEST_PROP(NodeDigest, IsRefusedOrSoundIfBitsAreWrong, (uint64_t seed)) {
  Prng prng(seed);
  const std::string bytes = encode(AnyNews(seed).digest(), kSaid);
  for (int i = 0; i < 20; ++i) {
    std::string wrong = bytes;
    for (uint64_t flips = 1 + prng.below(3); flips > 0; --flips)
      wrong[prng.below(wrong.size())] ^= static_cast<char>(1 << prng.below(8));
    const auto digest = decode_node_digest(wrong, kSaid);
    if (!digest) continue;
    // It can be encoded again.
    RC_ASSERT(decode_node_digest(encode(*digest, kSaid), kSaid) == as_sent(*digest));
    for (size_t rank = 0; rank < digest->ranks.size(); ++rank)
      RC_ASSERT(digest->ranks[rank].rank > (rank == 0 ? -1 : digest->ranks[rank - 1].rank));
  }
}

Life in_futex() {
  return {.state = LifeState::blocked, .call = SystemCall{.is_known = true, .name = "futex"}};
}

// ---- size

// A rank, of 8,000, that waits in its third call.
RankNews waiting(int rank, Instant called) {
  RankDigest digest;
  digest.rank = rank;
  digest.generation = 1;
  digest.source = 1;
  digest.at = kSaid - milliseconds(3);
  GroupDigest world{.id = "world/0123456789abcdef",
                    .name = "world",
                    .ranks = std::vector<int>(8000),
                    .size = 8000,
                    .own_rank = rank,
                    .phase = GroupPhase::ready,
                    .since = called - seconds(30),
                    .called = 3,
                    .completed = 2,
                    .completion_is_late = false,
                    .completion_is_unknown = false,
                    .calls = {},
                    .hashes = {}};
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  for (uint64_t i = 1; i <= 3; ++i)
    world.calls.push_back({i,
                           {.kind = ring::CallKind::all_reduce,
                            .type = ring::ElementType::float32,
                            .reduction = ring::Reduction::sum,
                            .is_synchronous = true,
                            .count = 262'144},
                           called - seconds(3 - i),
                           "train.py:88 step"});
  digest.groups.push_back(world);
  world.id = world.name = "tp";
  for (size_t i = 0; i < 1000; ++i)
    world.ranks[i] = static_cast<int>(8 * i);
  world.ranks.resize(1000);
  digest.groups.push_back(world);
  return {.rank = rank,
          .pid = 4711 + rank,
          .device = "GPU 1",
          .version = 7,
          .at = digest.at,
          .digest = digest,
          .life = RankLife{in_futex(), kSaid - milliseconds(400)},
          .code = {}};
}

TEST(NodeDigest, RanksInOneStateAreEncodedTogether) {
  NodeDigest one{.host = "node-7", .ranks = {waiting(0, kSaid - seconds(12))}};
  NodeDigest eight = one;
  for (int rank = 1; rank < 8; ++rank)
    eight.ranks.push_back(waiting(rank, kSaid - seconds(12) + microseconds(137 * rank)));
  EXPECT_LE(encode(one, kSaid).size(), 250U);
  EXPECT_LE(encode(eight, kSaid).size() - encode(one, kSaid).size(), 7 * 50U);
}

TEST(NodeDigest, TheHighestRankArrives) {
  NodeDigest said;
  said.ranks.emplace_back().rank = INT_MAX;
  const auto heard = decode_node_digest(encode(said, kSaid), kSaid);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->ranks.front().rank, INT_MAX);
}

TEST(NodeDigest, TimesAreConvertedToTheReadersClock) {
  const NodeDigest said{.host = "", .ranks = {waiting(0, kSaid - seconds(12))}};
  const Instant then = kSaid + seconds(1000);  // The same moment by the reader's clock.
  const auto heard = decode_node_digest(encode(said, kSaid), then);
  ASSERT_TRUE(heard);
  const RankNews& news = heard->ranks.front();
  EXPECT_EQ(news.at, then - milliseconds(3));
  EXPECT_EQ(news.digest->at, then - milliseconds(3));
  EXPECT_EQ(news.digest->groups[0].calls[2].called, then - seconds(12));
  EXPECT_EQ(news.life->at, then - milliseconds(400));
}

// ---- hostile

TEST(NodeDigest, ListsOfMoreMembersThanAllowedAreLeftOut) {
  NodeDigest digest;
  for (int rank = 0; rank < 200; ++rank)
    digest.ranks.push_back(waiting(rank, kSaid));  // 9,000 members each.
  const auto heard = decode_node_digest(encode(digest, kSaid), kSaid);
  ASSERT_TRUE(heard);
  const auto count = [](const RankNews& news) { return news.digest->groups[0].ranks.size(); };
  EXPECT_EQ(count(heard->ranks.front()), 8000U);
  EXPECT_EQ(count(heard->ranks.back()), 0U);
  EXPECT_EQ(heard->ranks.back().digest->groups[0].calls,
            digest.ranks.back().digest->groups[0].calls);
}

// A small message with many back references decodes to a few megabytes at most, or is refused.
TEST(NodeDigest, ReferencesDoNotMakeASmallMessageLarge) {
  NodeDigest digest;
  RankNews big = waiting(0, kSaid);
  big.digest->groups.resize(1);
  big.digest->groups[0].ranks.clear();
  for (uint64_t i = 4; i <= 64; ++i)
    big.digest->groups[0].calls.push_back({i, {}, kSaid, std::string(256, 'x')});
  big.digest->groups[0].completed = 64;
  for (int group = 0; group < 60; ++group)
    big.digest->groups.push_back(big.digest->groups[0]);
  for (int rank = 0; rank < 100; ++rank) {
    big.rank = rank;
    digest.ranks.push_back(big);
  }
  EXPECT_FALSE(decode_node_digest(encode(digest, kSaid), kSaid));
}

TEST(NodeDigest, ARunOfMembersIsBounded) {
  NodeDigest digest{.host = "", .ranks = {waiting(0, kSaid)}};
  digest.ranks[0].digest->groups.resize(1);
  std::vector<int>& ranks = digest.ranks[0].digest->groups[0].ranks;
  ranks.assign(1'000'000, 0);
  const std::string bytes = encode(digest, kSaid);
  ASSERT_TRUE(decode_node_digest(bytes, kSaid));
  const std::string million{"\xc0\x84\x3d", 3};  // As a varint.
  const size_t place = bytes.find(million);
  ASSERT_NE(place, std::string::npos);
  for (const char* const count : {"\xc1\x84\x3d", "\x80\x80\x00", "\xff\xff\x7f"}) {
    std::string wrong = bytes;
    wrong.replace(place, 3, count, 3);
    EXPECT_FALSE(decode_node_digest(wrong, kSaid));
  }
  ranks.push_back(0);
  const auto heard = decode_node_digest(encode(digest, kSaid), kSaid);
  ASSERT_TRUE(heard);
  EXPECT_TRUE(heard->ranks[0].digest->groups[0].ranks.empty());
}

TEST(NodeDigest, TooLongTextsAreCutBetweenCharacters) {
  NodeDigest digest;
  for (int i = 0; i < 129; ++i)
    digest.host += "\xc3\xa4";
  const auto heard = decode_node_digest(encode(digest, kSaid), kSaid);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->host, digest.host.substr(0, 256));
}

}  // namespace
}  // namespace muster::hang
