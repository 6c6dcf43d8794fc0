#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/store/tcpstore_codec.h"
#include "tests/unit/rendezvous/store/store_harness.h"

namespace muster {
namespace {

using namespace store_test;
using tcpstore::Reply;
using tcpstore::ReplyDecoder;
using tcpstore::Shape;
using Outcome = ReplyDecoder::Decoded;

struct Expected {
  Shape shape;
  size_t strings;
  std::string bytes;
  Reply reply;
};

std::vector<Expected> every_shape() {
  return {{Shape::none, 0, "", {0, {}}},
          {Shape::flag, 0, hex("01"), {1, {}}},
          {Shape::flag, 0, hex("ff"), {255, {}}},
          {Shape::nonce, 0, hex("7c3c0000"), {0x3c7c, {}}},
          {Shape::nonce, 0, hex("ffffffff"), {0xffffffff, {}}},
          {Shape::number, 0, hex("feffffffffffffff"), {-2, {}}},
          {Shape::number, 0, hex("0000000000000080"), {std::numeric_limits<int64_t>::min(), {}}},
          {Shape::strings, 0, "", {0, {}}},
          {Shape::strings, 1, str("value"), {0, {"value"}}},
          {Shape::strings, 3, str("a") + str("") + str("ccc"), {0, {"a", "", "ccc"}}},
          {Shape::names, 0, i64(0), {0, {}}},
          {Shape::names, 0, i64(2) + str("/k") + str(""), {2, {"/k", ""}}}};
}

TEST(ReplyDecoder, DecodesEveryShapeInPiecesOfEverySize) {
  for (const Expected& expected : every_shape()) {
    for (size_t size = 1; size <= expected.bytes.size() + 1; size++) {
      ReplyDecoder decoder(expected.shape, expected.strings);
      std::string_view none;
      auto outcome = decoder.next(none);
      for (size_t at = 0; at < expected.bytes.size(); at += size) {
        ASSERT_EQ(outcome, Outcome::more);
        std::string_view piece = std::string_view(expected.bytes).substr(at, size);
        outcome = decoder.next(piece);
        ASSERT_TRUE(piece.empty());
      }
      ASSERT_EQ(outcome, Outcome::reply);
      EXPECT_EQ(decoder.take(), expected.reply);
    }
  }
}

TEST(ReplyDecoder, LeavesTheBytesOfTheNextAnswer) {
  for (const Expected& expected : every_shape()) {
    ReplyDecoder decoder(expected.shape, expected.strings);
    const std::string bytes = expected.bytes + "rest";
    std::string_view input(bytes);
    EXPECT_EQ(decoder.next(input), Outcome::reply);
    EXPECT_EQ(input, "rest");
    EXPECT_EQ(decoder.next(input), Outcome::reply);  // A complete answer takes no more bytes.
    EXPECT_EQ(input, "rest");
    EXPECT_EQ(decoder.take(), expected.reply);
  }
}

TEST(ReplyDecoder, IgnoresTheNumberOfStringsForOtherShapes) {
  ReplyDecoder decoder(Shape::flag, 5);
  std::string_view input("\1");
  EXPECT_EQ(decoder.next(input), Outcome::reply);
}

Outcome outcome_of(Shape shape, const std::string& bytes, size_t most, size_t strings = 1) {
  ReplyDecoder decoder(shape, strings, most);
  std::string_view input(bytes);
  return decoder.next(input);
}

TEST(ReplyDecoder, RefusesAnAnswerBeyondTheLimit) {
  EXPECT_EQ(outcome_of(Shape::strings, str(std::string(92, 'v')), 100), Outcome::reply);
  EXPECT_EQ(outcome_of(Shape::strings, i64(93), 100), Outcome::malformed);
  EXPECT_EQ(outcome_of(Shape::strings, i64(-1), 100), Outcome::malformed);
  EXPECT_EQ(outcome_of(Shape::names, i64(-1), 100), Outcome::malformed);
  EXPECT_EQ(outcome_of(Shape::names, i64(12), 100), Outcome::more);
  EXPECT_EQ(outcome_of(Shape::names, i64(13), 100), Outcome::malformed);
}

TEST(ReplyDecoder, SharesTheLimitAmongAllStrings) {
  const std::string half = str(std::string(42, 'v'));  // 50 bytes with its length.
  EXPECT_EQ(outcome_of(Shape::strings, half + half, 100, 2), Outcome::reply);
  EXPECT_EQ(outcome_of(Shape::strings, half + half, 99, 2), Outcome::malformed);
  EXPECT_EQ(outcome_of(Shape::strings, half + half + str(""), 107, 3), Outcome::malformed);
  EXPECT_EQ(outcome_of(Shape::strings, half + half + str(""), 108, 3), Outcome::reply);
}

TEST(ReplyDecoder, AllocatesNothingForAPromisedGibibyte) {
  constexpr auto kMost = static_cast<int64_t>(ReplyDecoder::kReplyBytesMax);
  ReplyDecoder decoder(Shape::strings, 1);
  const std::string promise = i64(kMost - 8);
  std::string_view input(promise);
  EXPECT_EQ(decoder.next(input), Outcome::more);
  EXPECT_LT(decoder.take().strings.at(0).capacity(), 1000u);
  EXPECT_EQ(outcome_of(Shape::strings, i64(kMost - 7), ReplyDecoder::kReplyBytesMax),
            Outcome::malformed);
}

RC_GTEST_PROP(ReplyDecoder, ReadsBackAnyStringsInAnyPieces,
              (const std::vector<std::string>& strings)) {
  const bool counted = *rc::gen::arbitrary<bool>();
  const Shape shape = counted ? Shape::names : Shape::strings;
  std::string bytes = counted ? i64(static_cast<int64_t>(strings.size())) : "";
  for (const std::string& text : strings)
    bytes += str(text);
  ReplyDecoder decoder(shape, strings.size());
  std::string_view left(bytes);
  std::string_view none;
  Outcome outcome = decoder.next(none);
  while (outcome == Outcome::more) {
    RC_ASSERT(!left.empty());
    std::string_view piece = left.substr(0, *rc::gen::inRange<size_t>(1, 12));
    left.remove_prefix(piece.size());
    outcome = decoder.next(piece);
    RC_ASSERT(piece.empty());
  }
  RC_ASSERT(outcome == Outcome::reply);
  RC_ASSERT(left.empty());
  RC_ASSERT(decoder.take() == (Reply{counted ? static_cast<int64_t>(strings.size()) : 0, strings}));
}

// A sequence of lengths, mostly small; otherwise each answer would be malformed from the start.
std::string hostile_lengths() {
  const auto lengths = *rc::gen::container<std::vector<int64_t>>(
      rc::gen::element<int64_t>(0, 0, 0, 0, 8, 16, 1, 48, 57, -1, 1 << 30));
  std::string bytes;
  for (const int64_t length : lengths)
    bytes += i64(length);
  return bytes;
}

RC_GTEST_PROP(ReplyDecoder, HostileBytesNeverExceedTheLimit, ()) {
  constexpr size_t kMost = 64;
  const std::string bytes = hostile_lengths();
  const auto shape = *rc::gen::element(Shape::strings, Shape::names);
  ReplyDecoder decoder(shape, *rc::gen::inRange<size_t>(0, 12), kMost);
  std::string_view input(bytes);
  const Outcome outcome = decoder.next(input);
  RC_ASSERT(bytes.ends_with(input));
  RC_ASSERT(outcome != Outcome::more || input.empty());
  size_t sum = 0;
  for (const std::string& text : decoder.take().strings)
    sum += 8 + text.size();
  RC_ASSERT(sum <= kMost);
}

}  // namespace
}  // namespace muster
