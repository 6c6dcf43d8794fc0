#include "worker_lib/stragglers/rank_progress.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "worker_lib/fields.h"

namespace muster::worker {
namespace {

using FieldList = std::vector<std::string>;

// The nested lists of a text with one group, in which a test spoils one thing.
struct ProgressFields {
  FieldList lane{"7", "6", "all_reduce", "1", encode_fields({"1", "2"}), "7", "1", "2", "3"};
  FieldList transfer{"10", "-1"};
  FieldList trouble{"17", encode_fields({"4"})};
  std::string troubles = "1";
  std::string version = "muster progress 1";

  std::optional<RankProgress> decoded() const {
    const FieldList idle{"0", "0", "", "0", ""};
    FieldList group{"id", "name", encode_fields({"0", "1"}), encode_fields(lane)};
    for (size_t i = 1; i < kLanes; ++i)
      group.push_back(encode_fields(idle));
    group.insert(group.end(), transfer.begin(), transfer.end());
    FieldList all{version, troubles};
    all.insert(all.end(), trouble.begin(), trouble.end());
    all.push_back(encode_fields(group));
    return RankProgress::decode(encode_fields(all));
  }
};

RankProgress good_progress() {
  GroupProgress group{.id = "id", .name = "name", .lanes = {}, .transfers = {}, .members = {0, 1}};
  group.lane(Lane::host) = {7, 6, "all_reduce", true, {1, 2}, {{7, {1, 2, 3}}}};
  group.transfers = {{OpKind::recv, -1}};
  return {{group}, {{{4}, std::chrono::milliseconds(17)}}};
}

TEST(RankProgressCodec, WritesAndReadsTheFieldsInTheirOrder) {
  EXPECT_EQ(ProgressFields().decoded(), good_progress());
  EXPECT_EQ(RankProgress::decode(good_progress().encode()), good_progress());
  EXPECT_EQ(RankProgress::decode(RankProgress().encode()), RankProgress());
}

TEST(RankProgressCodec, WhatNoRankWouldWriteIsRefused) {
  const auto spoiled = [](auto change) {
    ProgressFields fields;
    change(fields);
    return fields.decoded();
  };
  struct Case {
    FieldList ProgressFields::* list;
    size_t field;
    const char* text;
  };
  const std::vector<Case> cases{
      {&ProgressFields::lane, 0, "-1"},     {&ProgressFields::lane, 0, "18446744073709551616"},
      {&ProgressFields::lane, 1, "6 "},     {&ProgressFields::lane, 3, "2"},
      {&ProgressFields::lane, 3, ""},       {&ProgressFields::lane, 4, "1"},
      {&ProgressFields::lane, 4, "2:-1"},   {&ProgressFields::lane, 4, "10:2147483648"},
      {&ProgressFields::lane, 8, "x"},      {&ProgressFields::transfer, 0, "8"},
      {&ProgressFields::transfer, 0, "11"}, {&ProgressFields::transfer, 1, "-2"},
      {&ProgressFields::trouble, 0, "-1"},  {&ProgressFields::trouble, 1, "1:x"},
  };
  for (const Case& one : cases) {
    const auto change = [&](ProgressFields& fields) { (fields.*one.list)[one.field] = one.text; };
    EXPECT_EQ(spoiled(change), std::nullopt) << "field " << one.field << " is " << one.text;
  }
  EXPECT_EQ(spoiled([](ProgressFields& all) { all.version = "muster progress 2"; }), std::nullopt);
  EXPECT_EQ(spoiled([](ProgressFields& all) { all.lane.pop_back(); }), std::nullopt);
  EXPECT_EQ(spoiled([](ProgressFields& all) { all.transfer.pop_back(); }), std::nullopt);
  for (const char* troubles : {"2", "-1", "18446744073709551615"})
    EXPECT_EQ(spoiled([&](ProgressFields& all) { all.troubles = troubles; }), std::nullopt);
}

// Else one answer could be as large as its sender likes.
TEST(RankProgressCodec, ListsEndAtTheirLimits) {
  RankProgress progress = good_progress();
  std::vector<int>& awaited = progress.groups[0].lane(Lane::host).awaited;
  awaited.resize(kAwaitedMax);
  std::iota(awaited.begin(), awaited.end(), 0);
  EXPECT_EQ(RankProgress::decode(progress.encode()), progress);
  const RankProgress longest = progress;
  awaited.push_back(5);
  EXPECT_EQ(RankProgress::decode(progress.encode()), longest) << "the rest is not sent";
  ProgressFields fields;
  fields.lane[4] = encode_fields(FieldList(kAwaitedMax + 1, "3"));
  EXPECT_EQ(fields.decoded(), std::nullopt);
  for (const size_t calls : {kCallsKept, kCallsKept + 1}) {
    fields = {};
    fields.lane.resize(5);
    fields.lane.insert(fields.lane.end(), 4 * calls, "1");
    EXPECT_EQ(fields.decoded().has_value(), calls == kCallsKept) << calls;
  }
}

RC_GTEST_PROP(RankProgressCodec, SpoiledBytesAreRefusedOrReadAlikeByAll, ()) {
  std::string text = good_progress().encode();
  for (int left = *rc::gen::inRange(1, 4); left > 0; --left)
    text[*rc::gen::inRange<size_t>(0, text.size())] = *rc::gen::element('0', '1', '9', ':', '-');
  const std::optional<RankProgress> progress = RankProgress::decode(text);
  if (!progress) return;
  RC_ASSERT(RankProgress::decode(progress->encode()) == progress);
}

TEST(RankProgressCodec, GroupsAndCallsAreFoundByWhatNamesThem) {
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
