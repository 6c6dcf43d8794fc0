#include "rendezvous/ring/call_rules.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::ring {
namespace {

using enum CallKind;

template <typename Enum>
rc::Gen<Enum> numbers(Enum first, Enum last) {
  return rc::gen::map(rc::gen::inRange(static_cast<int>(first), static_cast<int>(last) + 1),
                      [](int number) { return static_cast<Enum>(number); });
}

// Small ranges, so that two calls sometimes agree.
rc::Gen<Call> calls() {
  return rc::gen::build<Call>(
      rc::gen::set(&Call::kind, numbers(unknown, allocate_shared)),
      rc::gen::set(&Call::type, rc::gen::element(ElementType::unknown, ElementType::int32,
                                                 ElementType::float32, ElementType::float64)),
      rc::gen::set(&Call::reduction,
                   rc::gen::element(Reduction::unknown, Reduction::sum, Reduction::max)),
      rc::gen::set(&Call::is_v, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Call::is_synchronous, rc::gen::arbitrary<bool>()),
      rc::gen::set(&Call::root, rc::gen::inRange(-1, 2)),
      rc::gen::set(&Call::count, rc::gen::inRange<uint64_t>(0, 5)));
}

// A collective without unknown fields.
rc::Gen<Call> known_calls() {
  return rc::gen::suchThat(calls(), [](const Call& call) {
    return !is_message(call.kind) && call.kind != unknown && call.type != ElementType::unknown &&
           call.reduction != Reduction::unknown && call.root >= 0;
  });
}

RC_GTEST_PROP(CallRules, TheDifferenceOfTwoCallsIsSymmetric, ()) {
  const Call a = *calls();
  const Call b = *calls();
  RC_ASSERT(difference_of(a, b) == difference_of(b, a));
}

RC_GTEST_PROP(CallRules, NoCallDiffersFromItself, ()) {
  const Call call = *calls();
  RC_ASSERT(difference_of(call, call) == Difference::none);
}

RC_GTEST_PROP(CallRules, HashesAreEqualExactlyIfNothingDiffers, (uint64_t hash)) {
  const Call a = *known_calls();
  Call b = *known_calls();
  if (*rc::gen::arbitrary<bool>()) b.kind = a.kind;
  b.is_v = a.is_v;
  RC_ASSERT((mixed_in(hash, a) == mixed_in(hash, b)) == (difference_of(a, b) == Difference::none));
}

RC_GTEST_PROP(CallRules, UnknownFieldsNeverDiffer, ()) {
  const Call a = *calls();
  Call b = a;
  for (const int field : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4))) {
    if (field == 0) b.kind = unknown;
    if (field == 1) b.type = ElementType::unknown;
    if (field == 2) b.reduction = Reduction::unknown;
    if (field == 3) b.root = -1;
  }
  RC_ASSERT(difference_of(a, b) == Difference::none);
}

TEST(CallRules, TheHashDependsOnTheOrderOfTheCalls) {
  const Call a{.kind = all_reduce, .count = 1};
  const Call b{.kind = barrier};
  EXPECT_NE(mixed_in(mixed_in(0, a), b), mixed_in(mixed_in(0, b), a));
  EXPECT_NE(mixed_in(0, a), mixed_in(mixed_in(0, a), a));
  EXPECT_NE(mixed_in(0, b), 0U);
}

struct Row {
  CallKind kind;
  std::vector<Difference> compared;
};

Difference difference_in(CallKind kind, Difference field, bool is_v) {
  const Call a{kind, ElementType::float32, Reduction::sum, is_v, true, 1, 6};
  Call b = a;
  if (field == Difference::root) b.root = 2;
  if (field == Difference::reduction) b.reduction = Reduction::max;
  if (field == Difference::type) b.type = ElementType::int32;
  if (field == Difference::count || field == Difference::bytes) b.count = 7;
  b.is_synchronous = false;
  return difference_of(a, b);
}

TEST(CallRules, EachKindComparesTheFieldsThatMustAgree) {
  using enum Difference;
  const std::vector<Row> rows{
      {barrier, {}},
      {broadcast, {root, bytes}},
      {reduce, {root, reduction, type, Difference::count}},
      {all_reduce, {reduction, type, Difference::count}},
      {gather, {root}},
      {all_gather, {bytes}},
      {scatter, {root}},
      {reduce_scatter, {reduction, type, Difference::count}},
      {all_to_all, {bytes}},
      {send, {}},
      {recv, {}},
      {monitored_barrier, {}},
      {allocate_shared, {}},
  };
  for (const Row& row : rows) {
    std::vector<Difference> found;
    for (const Difference field : {root, reduction, type, Difference::count}) {
      const Difference difference = difference_in(row.kind, field, false);
      if (difference != none) found.push_back(difference);
      const bool is_root = field == root && difference == root;
      EXPECT_EQ(difference_in(row.kind, field, true), is_root ? root : none)
          << name_of(row.kind) << ": with counts by rank only the root is compared";
    }
    EXPECT_EQ(found, row.compared) << name_of(row.kind);
  }
}

TEST(CallRules, DifferentKindsAreTheFirstDifference) {
  const Call a{all_reduce, ElementType::float32, Reduction::sum, false, true, 1, 6};
  EXPECT_EQ(difference_of(a, {.kind = barrier}), Difference::kind);
  EXPECT_EQ(difference_of({.kind = barrier}, {.kind = monitored_barrier}), Difference::kind);
  EXPECT_EQ(difference_of({.kind = send}, {.kind = recv}), Difference::none);
  EXPECT_EQ(difference_of({.kind = send}, {.kind = barrier}), Difference::none)
      << "messages have their own order";
}

TEST(CallRules, EqualByteCountsMayHaveDifferentTypes) {
  Call a{.kind = broadcast, .type = ElementType::float32, .root = 0, .count = 6};
  Call b{.kind = broadcast, .type = ElementType::int64, .root = 0, .count = 3};
  EXPECT_EQ(difference_of(a, b), Difference::none);
  EXPECT_EQ(mixed_in(5, a), mixed_in(5, b));
  b.count = 4;
  EXPECT_EQ(difference_of(a, b), Difference::bytes);
  b.type = ElementType::unknown;
  EXPECT_EQ(difference_of(a, b), Difference::none) << "the size is unknown";
}

TEST(CallRules, TheFirstDifferenceIsNamed) {
  const Call a{reduce, ElementType::float32, Reduction::sum, false, true, 1, 6};
  Call b{reduce, ElementType::int32, Reduction::max, false, true, 2, 7};
  for (const Difference expected :
       {Difference::root, Difference::reduction, Difference::type, Difference::count}) {
    EXPECT_EQ(difference_of(a, b), expected);
    if (expected == Difference::root) b.root = a.root;
    if (expected == Difference::reduction) b.reduction = a.reduction;
    if (expected == Difference::type) b.type = a.type;
  }
}

TEST(CallRules, CallsAreDescribedInWords) {
  EXPECT_EQ(describe({all_reduce, ElementType::float32, Reduction::sum, false, true, -1, 262144}),
            "all_reduce (sum) of 262144 float32");
  EXPECT_EQ(describe({.kind = broadcast, .type = ElementType::int64, .root = 2, .count = 1}),
            "broadcast of 1 int64 from rank 2 of the group");
  EXPECT_EQ(describe({.kind = reduce, .root = 0, .count = 5}),
            "reduce of 5 elements to rank 0 of the group");
  EXPECT_EQ(describe({.kind = gather, .type = ElementType::boolean, .count = 5}),
            "gather of 5 boolean");
  EXPECT_EQ(describe({.kind = all_to_all, .type = ElementType::uint8, .is_v = true, .count = 5}),
            "all_to_all of uint8 in several parts");
  EXPECT_EQ(describe({.kind = send, .type = ElementType::float16, .root = 3, .count = 4}),
            "send of 4 float16 to rank 3 of the group");
  EXPECT_EQ(describe({.kind = recv, .type = ElementType::float16, .count = 4}),
            "recv of 4 float16 from any rank of the group");
  EXPECT_EQ(describe({.kind = barrier, .count = 1}), "barrier");
  EXPECT_EQ(describe({.kind = monitored_barrier}), "monitored_barrier");
  EXPECT_EQ(describe({.kind = allocate_shared, .count = 4096}), "allocate_shared of 4096 bytes");
  EXPECT_EQ(describe({}), "unknown");
}

// The ring stores these numbers, so each name is pinned to its number.
TEST(CallRules, NamesMatchTheirNumbers) {
  const std::vector<std::string> kinds{
      "unknown", "barrier",    "broadcast",         "reduce",         "all_reduce",
      "gather",  "all_gather", "scatter",           "reduce_scatter", "all_to_all",
      "send",    "recv",       "monitored_barrier", "allocate_shared"};
  for (size_t i = 0; i < kinds.size(); ++i)
    EXPECT_EQ(name_of(static_cast<CallKind>(i)), kinds[i]);
  const std::vector<std::string> reductions{
      "unknown", "sum",  "average", "product", "min",
      "max",     "band", "bor",     "bxor",    "premultiplied_sum"};
  for (size_t i = 0; i < reductions.size(); ++i)
    EXPECT_EQ(name_of(static_cast<Reduction>(i)), reductions[i]);
  struct Element {
    std::string name;
    uint64_t bytes;
  };
  const std::vector<Element> elements{
      {"unknown", 0},     {"int8", 1},        {"uint8", 1},    {"int16", 2},   {"uint16", 2},
      {"int32", 4},       {"uint32", 4},      {"int64", 8},    {"uint64", 8},  {"float8_e4m3", 1},
      {"float8_e5m2", 1}, {"float16", 2},     {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
      {"complex64", 8},   {"complex128", 16}, {"boolean", 1}};
  for (size_t i = 0; i < elements.size(); ++i) {
    EXPECT_EQ(name_of(static_cast<ElementType>(i)), elements[i].name);
    EXPECT_EQ(bytes_of(static_cast<ElementType>(i)), elements[i].bytes) << elements[i].name;
  }
}

TEST(CallRules, NumbersOutOfRangeAreUnknown) {
  EXPECT_STREQ(name_of(static_cast<CallKind>(14)), "unknown");
  EXPECT_STREQ(name_of(static_cast<ElementType>(255)), "unknown");
  EXPECT_STREQ(name_of(static_cast<Reduction>(10)), "unknown");
  EXPECT_EQ(bytes_of(static_cast<ElementType>(18)), 0U);
  EXPECT_EQ(describe({.kind = static_cast<CallKind>(200)}), "unknown");
}

}  // namespace
}  // namespace muster::ring
