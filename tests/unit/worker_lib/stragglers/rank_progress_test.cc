#include "worker_lib/stragglers/rank_progress.h"

#include <array>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/net/field_codec.h"

namespace muster::worker {
namespace {

// The fields of a text with one group, of which a test changes one.
struct WrittenProgress {
  std::string version = "muster progress 2";
  uint32_t troubles = 1;
  int64_t age_ns = 17'000'000;
  std::vector<int> origin{4};
  uint8_t is_held = 1;
  std::vector<int> awaited{1, 2};
  size_t calls = 1;
  uint8_t transfer = 11;
  int peer = -1;
  std::string after = "";

  std::optional<RankProgress> decoded() const {
    std::string bytes;
    FieldWriter a(bytes);
    const auto put_ranks = [&](const std::vector<int>& ranks) {
      a.list(ranks, 0, [&](int rank) { a.integer(rank); });
    };
    a.text(version, 100);
    a.integer(troubles);
    a.integer(age_ns);
    put_ranks(origin);
    a.integer(uint32_t{1});
    a.text("id", 100);
    a.text("name", 100);
    put_ranks({0, 1});
    put_lane(a, {7, 6}, "all_reduce", is_held);
    put_ranks(awaited);
    a.list(std::vector<int>(calls), 0, [&](int) {
      for (const uint64_t number : {7u, 1u, 2u, 3u})
        a.integer(number);
    });
    for (size_t i = 1; i < kLanes; ++i) {
      put_lane(a, {0, 0}, "", 0);
      put_ranks({});
      put_ranks({});
    }
    a.integer(uint32_t{1});
    a.integer(transfer);
    a.integer(peer);
    return RankProgress::decode(bytes + after);
  }

 private:
  static void put_lane(FieldWriter& a, std::array<uint64_t, 2> begun_and_ended,
                       std::string_view last, uint8_t held) {
    for (const uint64_t number : begun_and_ended)
      a.integer(number);
    a.text(last, 100);
    a.integer(held);
  }
};

RankProgress good_progress() {
  GroupProgress group{.id = "id", .name = "name", .lanes = {}, .transfers = {}, .members = {0, 1}};
  group.lane(Lane::host) = {7, 6, "all_reduce", true, {1, 2}, {{7, {1, 2, 3}}}};
  group.transfers = {{OpKind::recv, -1}};
  return {{group}, {{{4}, std::chrono::milliseconds(17)}}};
}

TEST(RankProgressCodec, WritesAndReadsTheFieldsInTheirOrder) {
  EXPECT_EQ(WrittenProgress().decoded(), good_progress());
  EXPECT_EQ(RankProgress::decode(good_progress().encode()), good_progress());
  EXPECT_EQ(RankProgress::decode(RankProgress().encode()), RankProgress());
}

TEST(RankProgressCodec, RefusesTextThatNoRankWrites) {
  using Change = void (*)(WrittenProgress&);
  const std::vector<Change> changes{
      [](WrittenProgress& one) { one.version = "muster progress 1"; },
      [](WrittenProgress& one) { one.troubles = 2; },
      [](WrittenProgress& one) { one.troubles = std::numeric_limits<uint32_t>::max(); },
      [](WrittenProgress& one) { one.age_ns = -1; },
      [](WrittenProgress& one) { one.origin = {-1}; },
      [](WrittenProgress& one) { one.is_held = 2; },
      [](WrittenProgress& one) { one.awaited = {1, -1}; },
      [](WrittenProgress& one) { one.transfer = 9; },
      [](WrittenProgress& one) { one.transfer = 12; },
      [](WrittenProgress& one) { one.peer = -2; },
      [](WrittenProgress& one) { one.after = "x"; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    WrittenProgress spoiled;
    changes[i](spoiled);
    EXPECT_EQ(spoiled.decoded(), std::nullopt) << "change " << i;
  }
  const std::string whole = good_progress().encode();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(RankProgress::decode(whole.substr(0, size)), std::nullopt) << size;
}

// Otherwise a sender could make an answer as large as it likes.
TEST(RankProgressCodec, ListsEndAtTheirLimits) {
  RankProgress progress = good_progress();
  std::vector<int>& awaited = progress.groups[0].lane(Lane::host).awaited;
  awaited.resize(kAwaitedMax);
  std::iota(awaited.begin(), awaited.end(), 0);
  EXPECT_EQ(RankProgress::decode(progress.encode()), progress);
  const RankProgress longest = progress;
  awaited.push_back(5);
  EXPECT_EQ(RankProgress::decode(progress.encode()), longest) << "the rest is not sent";
  WrittenProgress written;
  written.awaited.assign(kAwaitedMax + 1, 3);
  EXPECT_EQ(written.decoded(), std::nullopt);
  for (const size_t calls : {kCallsKept, kCallsKept + 1}) {
    written = {};
    written.calls = calls;
    EXPECT_EQ(written.decoded().has_value(), calls == kCallsKept) << calls;
  }
}

RC_GTEST_PROP(RankProgressCodec, CorruptBytesAreRefusedOrReadTheSameByAll, ()) {
  std::string text = good_progress().encode();
  for (int left = *rc::gen::inRange(1, 4); left > 0; --left)
    text[*rc::gen::inRange<size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  const std::optional<RankProgress> progress = RankProgress::decode(text);
  if (!progress) return;
  RC_ASSERT(RankProgress::decode(progress->encode()) == progress);
}

TEST(RankProgressCodec, FindsGroupsByIdAndCallsByNumber) {
  const RankProgress progress = good_progress();
  EXPECT_EQ(progress.group("id"), &progress.groups[0]);
  EXPECT_EQ(progress.group("name"), nullptr) << "two groups may have one name";
  const LaneProgress& lane = progress.groups[0].lane(Lane::host);
  EXPECT_EQ(lane.call(7), &lane.calls[0].signature);
  EXPECT_EQ(lane.call(6), nullptr);
  EXPECT_TRUE(lane.is_under_way());
  EXPECT_FALSE(progress.groups[0].lane(Lane::device).is_under_way());
}

}  // namespace
}  // namespace muster::worker
