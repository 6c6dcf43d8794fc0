// The loops against element-by-element arithmetic, and the two instruction sets against each other.
#include "worker_lib/reduction/reduce_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/backends/backend_reference.h"
#include "worker_lib/reduction/reduce_variants.h"

namespace muster::worker {
namespace {

constexpr float kReduceNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kReduceInf = std::numeric_limits<float>::infinity();

std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i <= static_cast<int>(DType::float64); ++i) {
    dtypes.push_back(static_cast<DType>(i));
  }
  return dtypes;
}

std::vector<ReduceOp> ops_of(DType dtype) {
  std::vector<ReduceOp> ops;
  for (int i = 0; i <= static_cast<int>(ReduceOp::bxor); ++i) {
    if (is_reducible(dtype, static_cast<ReduceOp>(i))) ops.push_back(static_cast<ReduceOp>(i));
  }
  return ops;
}

ReduceLoop baseline_loop(DType dtype, ReduceOp op) {
  return baseline::loops_of(dtype)->reduce[static_cast<size_t>(op)];
}

template <typename T>
std::vector<T> reduced_by_kernel(ReduceOp op, std::vector<std::vector<T>> inputs,
                                 size_t into = SIZE_MAX) {
  std::vector<const std::byte*> in;
  for (const auto& input : inputs)
    in.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::vector<T> separate(inputs[0].size());
  std::vector<T>& out = into == SIZE_MAX ? separate : inputs[into];
  reduce_buffers(dtype_of<T>, op, reinterpret_cast<std::byte*>(out.data()), in.data(), in.size(),
                 out.size());
  return out;
}

template <typename T>
std::vector<T> numbers(const std::vector<float>& values) {
  std::vector<T> made;
  for (const float value : values)
    made.push_back(T(value));
  return made;
}

// ---- every loop

// Random bits; small integers for floats, to avoid NaN payloads and overflow.
std::vector<std::byte> random_elements(DType dtype, size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(static_cast<int64_t>(random() % 17) - 8);
    const uint64_t bits = random();
    std::byte* at = bytes.data() + i * size_of(dtype);
    if (is_float(dtype)) {
      reference::store(dtype, at, value);
    } else {
      std::memcpy(at, &bits, size_of(dtype));
    }
  }
  return bytes;
}

// Reduces one pair of elements at a time, by the loops for two inputs; in an average, all at once.
std::vector<std::byte> one_by_one(DType dtype, ReduceOp op,
                                  const std::vector<std::vector<std::byte>>& inputs) {
  const size_t width = size_of(dtype);
  std::vector<std::byte> out = inputs[0];
  for (size_t i = 0; i < out.size(); i += width) {
    if (op == ReduceOp::average) {
      std::vector<const std::byte*> elements;
      for (const auto& input : inputs)
        elements.push_back(input.data() + i);
      baseline_loop(dtype, op)(out.data() + i, elements.data(), elements.size(), 1);
      continue;
    }
    for (size_t k = 1; k < inputs.size(); ++k) {
      const std::array<const std::byte*, 2> pair{out.data() + i, inputs[k].data() + i};
      baseline_loop(dtype, op)(out.data() + i, pair.data(), 2, 1);
    }
  }
  return out;
}

size_t compare_all(size_t inputs, size_t count, std::mt19937_64& random) {
  size_t compared = 0;
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : ops_of(dtype)) {
      std::vector<std::vector<std::byte>> data;
      for (size_t k = 0; k < inputs; ++k)
        data.push_back(random_elements(dtype, count, random));
      const std::vector<std::byte> expected = one_by_one(dtype, op, data);
      // Into separate memory, or over one of the inputs.
      const size_t into = random() % (inputs + 1);
      std::vector<const std::byte*> in;
      for (const auto& one : data)
        in.push_back(one.data());
      std::vector<std::byte> separate(data[0].size());
      std::byte* out = into == inputs ? separate.data() : data[into].data();
      reduce_buffers(dtype, op, out, in.data(), inputs, count);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out))
          << name_of(dtype) << " " << name_of(op) << " of " << inputs << " inputs, " << count
          << " elements, into " << into;
      ++compared;
    }
  }
  return compared;
}

TEST(ReduceKernels, AnyNumberOfInputsEqualsReductionByPairsInOrder) {
  constexpr uint64_t kSeed = 20'26;
  std::mt19937_64 random(kSeed);
  size_t compared = 0;
  const std::vector<size_t> counts{0, 1, 2, 7, 8, 9, 31, 64, 1023, 1024, 1025, 3000, 4351};
  for (const size_t inputs : std::vector<size_t>{1, 2, 3, 4, 5, 7, 8, 9, 17}) {
    for (const size_t count : counts) {
      compared += compare_all(inputs, count, random);
    }
  }
  std::printf("compared %zu reductions, seed %llu\n", compared,
              static_cast<unsigned long long>(kSeed));
}

// Empty buffers may be null; the undefined-behaviour sanitizer checks the accesses.
TEST(ReduceKernels, EmptyInputsMayBeNullAndWriteNothing) {
  std::byte there{7};
  for (const size_t inputs : {1u, 2u, 3u, 4u, 5u, 9u}) {
    const std::vector<const std::byte*> none(inputs, nullptr);
    for (const DType dtype : {DType::uint8, DType::float16, DType::bfloat16, DType::float64}) {
      reduce_buffers(dtype, ReduceOp::average, nullptr, none.data(), inputs, 0);
      reduce_buffers(dtype, ReduceOp::max, &there, none.data(), inputs, 0);
    }
  }
  EXPECT_EQ(there, std::byte{7});
}

#if defined(MUSTER_HAVE_X86_LOOPS)
// All NaNs are equal here: which of two a sum keeps is unspecified (IEEE 754, 6.2.3).
bool is_nan_at(DType dtype, const std::byte* at) {
  const auto as = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return std::isnan(static_cast<double>(value));
  };
  switch (dtype) {
    case DType::float16:
      return std::isnan(static_cast<float>(
          float16::from_bits(std::bit_cast<uint16_t>(std::array<std::byte, 2>{at[0], at[1]}))));
    case DType::bfloat16:
      return std::isnan(static_cast<float>(
          bfloat16::from_bits(std::bit_cast<uint16_t>(std::array<std::byte, 2>{at[0], at[1]}))));
    case DType::float32:
      return as(float{});
    case DType::float64:
      return as(double{});
    default:
      return false;
  }
}

size_t count_differences(DType dtype, const std::vector<std::byte>& a,
                         const std::vector<std::byte>& b) {
  const size_t width = size_of(dtype);
  size_t count = 0;
  for (size_t i = 0; i < a.size(); i += width) {
    const bool equal = std::memcmp(a.data() + i, b.data() + i, width) == 0;
    const bool nans = is_nan_at(dtype, a.data() + i) && is_nan_at(dtype, b.data() + i);
    count += equal || nans ? 0 : 1;
  }
  return count;
}

TEST(ReduceKernels, UseTheInstructionSetsThatTheCompilersRuntimeSees) {
  const InstructionSets found = find_instruction_sets();
  EXPECT_EQ(found.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"));
  EXPECT_EQ(found.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512dq") &&
                              __builtin_cpu_supports("avx512vl"));
}

using LoopsOf = const Loops* (*)(DType dtype);

// Returns the number of dtypes compared.
int compare_with_baseline(LoopsOf loops_of) {
  constexpr uint64_t kSeed = 4'711;
  constexpr size_t kCount = 4'099;
  std::mt19937_64 random(kSeed);
  int compared = 0;
  for (const DType dtype : all_dtypes()) {
    const Loops* const loops = loops_of(dtype);
    if (loops == nullptr) continue;
    ++compared;
    for (const ReduceOp op : ops_of(dtype)) {
      // Any bits, including infinities and denormal numbers.
      std::vector<std::vector<std::byte>> data(3, std::vector<std::byte>(kCount * size_of(dtype)));
      for (auto& one : data) {
        for (std::byte& byte : one)
          byte = static_cast<std::byte>(random());
      }
      const std::vector<const std::byte*> in{data[0].data(), data[1].data(), data[2].data()};
      std::vector<std::byte> base(data[0].size());
      std::vector<std::byte> wide(data[0].size());
      baseline_loop(dtype, op)(base.data(), in.data(), 3, kCount);
      loops->reduce[static_cast<size_t>(op)](wide.data(), in.data(), 3, kCount);
      EXPECT_EQ(count_differences(dtype, base, wide), 0U) << name_of(dtype) << " " << name_of(op);
      baseline::loops_of(dtype)->divide(base.data(), kCount, 3);
      loops->divide(wide.data(), kCount, 3);
      EXPECT_EQ(count_differences(dtype, base, wide), 0U) << name_of(dtype) << " divided by 3";
    }
  }
  return compared;
}

TEST(ReduceKernels, Avx2GivesTheSameBits) {
  if (!find_instruction_sets().avx2) GTEST_SKIP() << "this processor has no AVX2";
  EXPECT_EQ(compare_with_baseline(avx2::loops_of), 9);
}

TEST(ReduceKernels, Avx512GivesTheSameBits) {
  if (!find_instruction_sets().avx512) GTEST_SKIP() << "this processor has no AVX-512";
  EXPECT_EQ(compare_with_baseline(avx512::loops_of), 1);
}
#endif

// ---- what the operations mean

TEST(ReduceKernels, IntegersWrapAround) {
  EXPECT_EQ(reduced_by_kernel<int8_t>(ReduceOp::sum, {{127, -128}, {1, -1}}),
            (std::vector<int8_t>{-128, 127}));
  EXPECT_EQ(reduced_by_kernel<uint8_t>(ReduceOp::product, {{16, 255}, {17, 255}}),
            (std::vector<uint8_t>{16, 1}));
  EXPECT_EQ(reduced_by_kernel<int16_t>(ReduceOp::product, {{-32768, 32767}, {-32768, 32767}}),
            (std::vector<int16_t>{0, 1}));
  EXPECT_EQ(reduced_by_kernel<int32_t>(ReduceOp::sum, {{std::numeric_limits<int32_t>::max()}, {1}}),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min()}));
  EXPECT_EQ(
      reduced_by_kernel<int64_t>(ReduceOp::product, {{std::numeric_limits<int64_t>::min()}, {-1}}),
      (std::vector<int64_t>{std::numeric_limits<int64_t>::min()}));
}

TEST(ReduceKernels, AveragesOfIntegersAreRoundedTowardsZero) {
  EXPECT_EQ(reduced_by_kernel<int32_t>(ReduceOp::average, {{7, -7, 8}, {0, 0, 0}}),
            (std::vector<int32_t>{3, -3, 4}));
  EXPECT_EQ(reduced_by_kernel<uint8_t>(ReduceOp::average, {{3}, {2}, {3}}),
            (std::vector<uint8_t>{2}));
  EXPECT_EQ(reduced_by_kernel<int8_t>(ReduceOp::average, {{-1}, {-1}, {0}}),
            (std::vector<int8_t>{0}));
}

// The loops divide in floating point. Near multiples of the divisor a quotient is closest to the
// next whole number.
template <typename T>
void compare_averages(size_t inputs, std::mt19937_64& random) {
  using Limits = std::numeric_limits<T>;
  std::vector<std::vector<T>> in(inputs, std::vector<T>(3'000));
  std::vector<int64_t> sums(in[0].size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const T base = i % 4 == 0   ? Limits::max()
                   : i % 4 == 1 ? Limits::min()
                                : static_cast<T>(random());
    for (auto& input : in) {
      // Below the middle upwards, above it downwards: no addition leaves the type.
      const auto step = static_cast<T>(random() % 3);
      input[i] = static_cast<T>(base > Limits::max() / 2 ? base - step : base + step);
      sums[i] += input[i];
    }
  }
  std::vector<T> expected;
  std::vector<T> divided;
  std::vector<T> by_hand;
  for (const int64_t sum : sums) {
    expected.push_back(static_cast<T>(sum / static_cast<int64_t>(inputs)));
    divided.push_back(static_cast<T>(sum));
    by_hand.push_back(static_cast<T>(divided.back() / static_cast<int64_t>(inputs)));
  }
  EXPECT_EQ(reduced_by_kernel<T>(ReduceOp::average, in), expected) << inputs << " inputs";
  divide(dtype_of<T>, reinterpret_cast<std::byte*>(divided.data()), divided.size(),
         static_cast<double>(inputs));
  EXPECT_EQ(divided, by_hand) << "by " << inputs;
}

TEST(ReduceKernels, AveragesOfIntegersAreExact) {
  std::mt19937_64 random(815);
  for (const size_t inputs : {1U, 2U, 3U, 5U, 7U, 10U, 49U, 64U, 127U}) {
    compare_averages<int8_t>(inputs, random);
    compare_averages<uint8_t>(inputs, random);
    compare_averages<int16_t>(inputs, random);
    compare_averages<int32_t>(inputs, random);
  }
}

TEST(ReduceKernels, AveragesOfNarrowTypesDoNotOverflow) {
  EXPECT_EQ(reduced_by_kernel<int8_t>(ReduceOp::average, {{100, -128}, {100, -128}}),
            (std::vector<int8_t>{100, -128}));
  EXPECT_EQ(reduced_by_kernel<uint8_t>(ReduceOp::average, {{255}, {255}, {254}}),
            (std::vector<uint8_t>{254}));
  EXPECT_EQ(reduced_by_kernel<int16_t>(ReduceOp::average, {{30000}, {32000}}),
            (std::vector<int16_t>{31000}));
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(reduced_by_kernel<int32_t>(ReduceOp::average, {{kMost}, {kMost}}),
            (std::vector<int32_t>{kMost}));
  const auto large = numbers<float16>({40000, -65504});
  EXPECT_EQ(reduced_by_kernel<float16>(ReduceOp::average, {large, large}), large);
  const auto small = numbers<float16>({6e-8F, -0.0F});  // The least positive number.
  EXPECT_EQ(reduced_by_kernel<float16>(ReduceOp::average, {small, small}), small);
}

TEST(ReduceKernels, AveragesOfFloatsAreDividedSums) {
  EXPECT_EQ(reduced_by_kernel<float>(ReduceOp::average, {{1.0F}, {1.0F}, {-1.0F}}),
            (std::vector<float>{1.0F / 3.0F}));
  EXPECT_EQ(reduced_by_kernel<bfloat16>(ReduceOp::average,
                                        {numbers<bfloat16>({1}), numbers<bfloat16>({2})}),
            numbers<bfloat16>({1.5F}));
}

TEST(ReduceKernels, HalvesAreRoundedAfterEveryAddition) {
  // 256 + 1 is a tie in bfloat16 and rounds to 256 (even), each time; 2048 + 1 in float16.
  const auto one = numbers<bfloat16>({1});
  EXPECT_EQ(reduced_by_kernel<bfloat16>(ReduceOp::sum, {numbers<bfloat16>({256}), one, one}),
            numbers<bfloat16>({256}));
  const auto half_one = numbers<float16>({1});
  EXPECT_EQ(
      reduced_by_kernel<float16>(ReduceOp::sum, {numbers<float16>({2048}), half_one, half_one}),
      numbers<float16>({2048}));
  EXPECT_EQ(reduced_by_kernel<float16>(ReduceOp::sum,
                                       {numbers<float16>({60000}), numbers<float16>({60000})}),
            numbers<float16>({kReduceInf}));
}

template <typename T>
void expect_nan_wins() {
  const auto values = numbers<T>({kReduceNan, 1, kReduceNan, -1});
  const auto others = numbers<T>({2, kReduceNan, kReduceNan, 3});
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const std::vector<T> result =
        reduced_by_kernel<T>(op, {values, others, numbers<T>({0, 0, 0, 0})});
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(std::isnan(static_cast<double>(float(result[i]))));
    EXPECT_EQ(float(result[3]), op == ReduceOp::min ? -1.0F : 3.0F);
  }
}

TEST(ReduceKernels, MinAndMaxGiveNanIfAnyInputIsNan) {
  expect_nan_wins<float>();
  expect_nan_wins<double>();
  expect_nan_wins<bfloat16>();
  expect_nan_wins<float16>();
}

TEST(ReduceKernels, SumsKeepInfinities) {
  const std::vector<float> sums =
      reduced_by_kernel<float>(ReduceOp::sum, {{kReduceInf, kReduceInf}, {1.0F, -kReduceInf}});
  EXPECT_EQ(sums[0], kReduceInf);
  EXPECT_TRUE(std::isnan(sums[1]));
}

TEST(ReduceKernels, BitwiseReductionsTakeOnlyIntegers) {
  EXPECT_EQ(reduced_by_kernel<int16_t>(ReduceOp::band, {{0x0ff0}, {0x00ff}}),
            (std::vector<int16_t>{0x00f0}));
  EXPECT_EQ(reduced_by_kernel<int64_t>(ReduceOp::bor, {{1}, {int64_t{1} << 40}}),
            (std::vector<int64_t>{(int64_t{1} << 40) + 1}));
  EXPECT_EQ(reduced_by_kernel<uint8_t>(ReduceOp::bxor, {{5}, {6}, {255}}),
            (std::vector<uint8_t>{252}));
  EXPECT_TRUE(is_reducible(DType::int8, ReduceOp::bxor));
  EXPECT_FALSE(is_reducible(DType::bfloat16, ReduceOp::band));
  EXPECT_TRUE(is_reducible(DType::float64, ReduceOp::product));
}

TEST(ReduceKernels, InputsAreAddedInTheirOrder) {
  EXPECT_EQ(reduced_by_kernel<float>(ReduceOp::sum, {{1e8F}, {-1e8F}, {1.0F}}),
            (std::vector<float>{1.0F}));
  EXPECT_EQ(reduced_by_kernel<float>(ReduceOp::sum, {{1.0F}, {1e8F}, {-1e8F}}),
            (std::vector<float>{0.0F}));
  // More inputs than are combined in one pass, into the last of them.
  EXPECT_EQ(reduced_by_kernel<float>(ReduceOp::sum,
                                     {{1.0F}, {1e8F}, {-1e8F}, {1.0F}, {1e8F}, {-1e8F}}, 5),
            (std::vector<float>{0.0F}));
}

}  // namespace
}  // namespace muster::worker
