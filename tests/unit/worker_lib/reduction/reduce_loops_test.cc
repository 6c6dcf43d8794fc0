// The loops, compiled for these tests alone, against scalar arithmetic.
#include "muster/types.h"

// What the including file has to define.
#define MUSTER_LOOPS loops_test
#define MUSTER_TARGET
namespace muster::worker::loops_test {
constexpr size_t kLanes = 1;
inline void widen_lanes(float* out, const uint16_t* in) {
  *out = static_cast<float>(float16::from_bits(*in));
}
inline void narrow_lanes(uint16_t* out, const float* in) {
  *out = float16(*in).bits();
}
}  // namespace muster::worker::loops_test
#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "worker_lib/reduction/reduce_loops.h"

namespace muster::worker {
namespace {

template <typename T>
using Inputs = std::vector<std::vector<T>>;

ReduceLoop loop_of(DType dtype, ReduceOp op) {
  return loops_test::loops_of(dtype)->reduce[static_cast<size_t>(op)];
}

// Reduces into separate memory, or over the input with the number `into`.
template <typename T>
std::vector<T> looped(ReduceOp op, Inputs<T> inputs, size_t into) {
  std::vector<const std::byte*> in;
  for (const std::vector<T>& one : inputs)
    in.push_back(reinterpret_cast<const std::byte*>(one.data()));
  std::vector<T> separate(inputs[0].size());
  std::vector<T>& out = into < inputs.size() ? inputs[into] : separate;
  loop_of(dtype_of<T>, op)(reinterpret_cast<std::byte*>(out.data()), in.data(), inputs.size(),
                           out.size());
  return out;
}

template <typename T, typename Combine>
std::vector<T> one_at_a_time(const Inputs<T>& inputs, const Combine& combine) {
  std::vector<T> out = inputs[0];
  for (size_t k = 1; k < inputs.size(); ++k) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<T>(combine(out[i], inputs[k][i]));
  }
  return out;
}

// Counts around those at which a loop begins to prefetch, or begins another step or block.
size_t any_count(size_t element) {
  const size_t limit = *rc::gen::element<size_t>(
      0, loops_test::kStepBytes / element, loops_test::kBlock,
      loops_test::kAskedForFromBytes / element,
      (loops_test::kAskedForFromBytes + loops_test::kStepBytes) / element);
  return limit + *rc::gen::inRange<size_t>(0, 3) - (limit > 0 ? 1 : 0);
}

// Values whose sums are rounded as floats, but small enough for halves to stay finite.
template <typename T>
T element_of(uint32_t bits) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(bits | 1U);
  } else {
    return T(static_cast<float>(bits >> 20));
  }
}

template <typename T, typename Combine>
void expect_as_one_at_a_time(ReduceOp op, const Combine& combine) {
  const size_t count = any_count(sizeof(T));
  Inputs<T> inputs(*rc::gen::inRange<size_t>(1, 10), std::vector<T>(count));
  auto bits = *rc::gen::arbitrary<uint32_t>();
  for (std::vector<T>& input : inputs) {
    for (T& value : input)
      value = element_of<T>(bits = bits * 1664525 + 1013904223);  // Knuth's generator.
  }
  const auto into = *rc::gen::inRange<size_t>(0, inputs.size() + 1);
  RC_ASSERT(looped(op, inputs, into) == one_at_a_time(inputs, combine));
}

RC_GTEST_PROP(ReduceLoops, CombineIntegersLikeScalarCodeAndWrapAround, ()) {
  expect_as_one_at_a_time<uint8_t>(ReduceOp::sum, std::plus<unsigned>());
  expect_as_one_at_a_time<int8_t>(ReduceOp::product, std::multiplies<int>());
  expect_as_one_at_a_time<int16_t>(ReduceOp::min, [](int a, int b) { return std::min(a, b); });
  expect_as_one_at_a_time<int32_t>(ReduceOp::sum, std::plus<int64_t>());
}

RC_GTEST_PROP(ReduceLoops, CombineBitsLikeScalarCode, ()) {
  expect_as_one_at_a_time<int32_t>(ReduceOp::bxor, std::bit_xor<int>());
  expect_as_one_at_a_time<int64_t>(ReduceOp::band, std::bit_and<int64_t>());
  expect_as_one_at_a_time<int64_t>(ReduceOp::bor, std::bit_or<int64_t>());
}

RC_GTEST_PROP(ReduceLoops, ReduceFloatsInTheOrderOfTheInputs, ()) {
  expect_as_one_at_a_time<float>(ReduceOp::sum, std::plus<float>());
  expect_as_one_at_a_time<float>(ReduceOp::product, std::multiplies<float>());
  expect_as_one_at_a_time<double>(ReduceOp::max, [](double a, double b) { return std::max(a, b); });
}

RC_GTEST_PROP(ReduceLoops, RoundHalvesAfterEveryStep, ()) {
  const auto add = [](auto a, auto b) { return static_cast<float>(a) + static_cast<float>(b); };
  expect_as_one_at_a_time<bfloat16>(ReduceOp::sum, add);
  expect_as_one_at_a_time<float16>(ReduceOp::sum, add);
}

TEST(ReduceLoops, ExistForEveryDefinedReduction) {
  for (int dtype = 0; dtype <= static_cast<int>(DType::float64); ++dtype) {
    for (int op = 0; op <= static_cast<int>(ReduceOp::bxor); ++op) {
      const auto type = static_cast<DType>(dtype);
      const auto reduction = static_cast<ReduceOp>(op);
      const bool is_defined = reduction < ReduceOp::band || type < DType::float16;
      EXPECT_EQ(loop_of(type, reduction) != nullptr, is_defined)
          << name_of(type) << " " << name_of(reduction);
    }
  }
  EXPECT_EQ(loops_test::loops_of(static_cast<DType>(9)), nullptr);
}

// ---- bfloat16

uint16_t narrowed(float value) {
  uint16_t out = 0;
  loops_test::Bf16::narrow(&out, &value, 1);
  return out;
}

TEST(ReduceLoops, EveryBfloat16SurvivesWideningAndNarrowing) {
  for (uint32_t bits = 0; bits <= UINT16_MAX; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float wide = 0;
    loops_test::Bf16::widen(&wide, &half, 1);
    ASSERT_EQ(narrowed(wide), std::isnan(wide) ? (half | 0x40) : half) << bits;
  }
}

RC_GTEST_PROP(ReduceLoops, NarrowAnyFloatLikeThePublicType, (uint32_t bits)) {
  const auto value = std::bit_cast<float>(bits);
  RC_ASSERT(narrowed(value) == bfloat16(value).bits());
}

// ---- division

template <typename T>
std::vector<T> divided_by_loop(std::vector<T> values, int by) {
  loops_test::loops_of(dtype_of<T>)
      ->divide(reinterpret_cast<std::byte*>(values.data()), values.size(), by);
  return values;
}

TEST(ReduceLoops, DivisionRoundsIntegersTowardsZeroAndHalvesToNearest) {
  EXPECT_EQ(divided_by_loop<int8_t>({-128, -7, 7, 127}, 2), (std::vector<int8_t>{-64, -3, 3, 63}));
  EXPECT_EQ(divided_by_loop<uint8_t>({255, 1}, 2), (std::vector<uint8_t>{127, 0}));
  EXPECT_EQ(divided_by_loop<int16_t>({-32768}, 1), (std::vector<int16_t>{-32768}));
  EXPECT_EQ(divided_by_loop<int32_t>({INT32_MIN, -1}, 3), (std::vector<int32_t>{-715827882, 0}));
  EXPECT_EQ(divided_by_loop<int64_t>({INT64_MAX, INT64_MIN}, 1000),
            (std::vector<int64_t>{INT64_MAX / 1000, INT64_MIN / 1000}));
  EXPECT_EQ(divided_by_loop<float>({1, -1}, 3), (std::vector<float>{1.0F / 3, -1.0F / 3}));
  EXPECT_EQ(divided_by_loop<double>({1}, 3), (std::vector<double>{1.0 / 3}));
  EXPECT_EQ(divided_by_loop(std::vector(2 * loops_test::kBlock + 1, bfloat16(1)), 3),
            std::vector(2 * loops_test::kBlock + 1, bfloat16(1.0F / 3)));
  EXPECT_EQ(divided_by_loop(std::vector(loops_test::kBlock + 1, float16(1)), 3),
            std::vector(loops_test::kBlock + 1, float16(1.0F / 3)));
}

}  // namespace
}  // namespace muster::worker
