#include "worker_lib/joining/rank_record.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "worker_lib/fields.h"

namespace muster::worker {
namespace {

RankRecord any_record() {
  const auto text = rc::gen::arbitrary<std::string>();
  RankRecord record;
  record.peer = {GlobalRank{*rc::gen::nonNegative<int>()}, *text, *text,
                 *rc::gen::nonNegative<int>(), *text};
  record.life = {*rc::gen::nonEmpty(text), *rc::gen::arbitrary<uint64_t>(),
                 *rc::gen::arbitrary<int>(), *rc::gen::arbitrary<uint64_t>()};
  record.secret_claim = *text;
  return record;
}

RC_GTEST_PROP(RankRecord, SurvivesEncoding, ()) {
  const RankRecord record = any_record();
  RC_ASSERT(RankRecord::decode(record.encode()) == record);
}

// Others can write the store: all ranks must read the same record from it, or none.
RC_GTEST_PROP(RankRecord, CorruptBytesAreRefusedOrReadAsAnotherRecord, ()) {
  std::string text = any_record().encode();
  for (int left = *rc::gen::inRange(1, 4); left > 0; --left)
    text[*rc::gen::inRange<size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
  text.resize(*rc::gen::inRange<size_t>(text.size() / 2, text.size() + 1));
  const std::optional<RankRecord> record = RankRecord::decode(text);
  if (!record) return;
  RC_ASSERT(RankRecord::decode(record->encode()) == record);
}

TEST(RankRecord, EveryFieldIsChecked) {
  const std::vector<std::string> good{"muster 5", "3",        "node",       "host",
                                      "4711",     "10.0.0.1", "boot/1/2/3", "knows 01"};
  const RankRecord expected{
      {GlobalRank{3}, "node", "host", 4711, "10.0.0.1"}, {"boot", 1, 2, 3}, "knows 01"};
  EXPECT_EQ(RankRecord::decode(encode_fields(good)), expected);
  struct Case {
    size_t field;
    const char* text;
  };
  const std::vector<Case> cases{{0, "muster 4"}, {0, "muster 50"},  {0, ""},      {1, ""}, {1, "x"},
                                {1, "3 "},       {1, "2147483648"}, {4, "4711x"}, {4, ""}, {6, ""},
                                {6, "boot/1/2"}, {6, "boot/1/x/3"}, {6, "/1/2/3"}};
  for (const Case& one : cases) {
    std::vector<std::string> fields = good;
    fields[one.field] = one.text;
    EXPECT_EQ(RankRecord::decode(encode_fields(fields)), std::nullopt)
        << "field " << one.field << " is '" << one.text << "'";
  }
  std::vector<std::string> more = good;
  more.emplace_back();
  EXPECT_EQ(RankRecord::decode(encode_fields(more)), std::nullopt);
  more.resize(7);
  EXPECT_EQ(RankRecord::decode(encode_fields(more)), std::nullopt);
}

}  // namespace
}  // namespace muster::worker
