// Element types, the 16 bit floats against a slow reference, names, and the error.
#include "muster/types.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muster/error.h"
#include "muster/process_group.h"

namespace muster {
namespace {

TEST(WorkerTypes, EveryDTypeHasItsSizeAndName) {
  struct Case {
    DType dtype;
    size_t bytes;
    std::string name;
  };
  const std::vector<Case> cases{{DType::int8, 1, "int8"},         {DType::uint8, 1, "uint8"},
                                {DType::int16, 2, "int16"},       {DType::int32, 4, "int32"},
                                {DType::int64, 8, "int64"},       {DType::float16, 2, "float16"},
                                {DType::bfloat16, 2, "bfloat16"}, {DType::float32, 4, "float32"},
                                {DType::float64, 8, "float64"}};
  for (const Case& each : cases) {
    EXPECT_EQ(size_of(each.dtype), each.bytes) << each.name;
    EXPECT_EQ(name_of(each.dtype), each.name);
  }
}

TEST(WorkerTypes, InvalidNumbersHaveNoSizeAndAreUnknown) {
  EXPECT_EQ(size_of(static_cast<DType>(200)), 0U);
  EXPECT_STREQ(name_of(static_cast<DType>(9)), "unknown");
  EXPECT_STREQ(name_of(static_cast<ReduceOp>(8)), "unknown");
  EXPECT_STREQ(name_of(static_cast<Backend>(4)), "unknown");
  EXPECT_STREQ(name_of(static_cast<ErrorCode>(0)), "unknown");
}

// The numbers go over the wire and through the C ABI, so each name is pinned to its number.
TEST(WorkerTypes, NamesKeepTheirNumbers) {
  const std::vector<std::string> reductions{"sum", "average", "product", "min",
                                            "max", "band",    "bor",     "bxor"};
  for (size_t i = 0; i < reductions.size(); ++i)
    EXPECT_EQ(name_of(static_cast<ReduceOp>(i)), reductions[i]);
  const std::vector<std::string> backends{"automatic", "cpu", "nccl", "gloo"};
  for (size_t i = 0; i < backends.size(); ++i)
    EXPECT_EQ(name_of(static_cast<Backend>(i)), backends[i]);
  const std::vector<std::string> codes{
      "invalid_argument", "not_initialized", "not_member",  "forked",  "environment",
      "rendezvous",       "timeout",         "peer_failed", "aborted", "stopped",
      "mismatch",         "backend",         "system"};
  for (size_t i = 0; i < codes.size(); ++i)
    EXPECT_EQ(name_of(static_cast<ErrorCode>(i + 1)), codes[i]);
}

// ---- which C++ types are elements

TEST(WorkerTypes, CppTypesMapToTheirDType) {
  static_assert(dtype_of<signed char> == DType::int8);
  static_assert(dtype_of<unsigned char> == DType::uint8);
  static_assert(dtype_of<std::byte> == DType::uint8);
  static_assert(dtype_of<short> == DType::int16);
  static_assert(dtype_of<int> == DType::int32);
  static_assert(dtype_of<long> == DType::int64);
  static_assert(dtype_of<long long> == DType::int64);
  static_assert(dtype_of<float16> == DType::float16);
  static_assert(dtype_of<bfloat16> == DType::bfloat16);
  static_assert(dtype_of<float> == DType::float32);
  static_assert(dtype_of<const double> == DType::float64);
  static_assert(!Element<bool> && !Element<unsigned> && !Element<unsigned long>);
  static_assert(!Element<long double> && !Element<int*> && !Element<std::string>);
  static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
}

TEST(WorkerTypes, RangesOfElementsAreBuffers) {
  std::vector<float> values(3);
  const Buffer buffer(values);
  EXPECT_EQ(buffer.data, values.data());
  EXPECT_EQ(buffer.count, 3U);
  EXPECT_EQ(buffer.dtype, DType::float32);
  EXPECT_EQ(buffer.device, Device::cpu());
  EXPECT_EQ(buffer.bytes(), 12U);
  const std::vector<int64_t> fixed(2);
  EXPECT_EQ(ConstBuffer(fixed).bytes(), 16U);
  EXPECT_EQ(Buffer(std::span<float>(values).subspan(1)).data, &values[1]);
  static_assert(!std::is_constructible_v<Buffer, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<Buffer, std::vector<float>>, "it would dangle");
  static_assert(!std::is_constructible_v<ConstBuffer, std::vector<float>>, "so would this");
  static_assert(!std::is_constructible_v<ConstBuffer, const std::vector<float>>);
  static_assert(!std::is_constructible_v<ConstBuffer, std::array<int, 3>>);
  static_assert(!std::is_constructible_v<ConstBuffer, std::string>);
  static_assert(!std::is_constructible_v<Buffer, std::ranges::owning_view<std::vector<float>>>);
  static_assert(std::is_convertible_v<std::span<const float>, ConstBuffer>, "views are no owners");
  static_assert(std::is_convertible_v<std::string_view, ConstBuffer>);
  static_assert(std::is_convertible_v<const std::array<int, 3>&, ConstBuffer>);
  static_assert(!std::is_constructible_v<Buffer, std::vector<bool>&>);
  static_assert(std::is_convertible_v<Buffer, ConstBuffer>);
  static_assert(!std::is_convertible_v<GlobalRank, GroupRank>);
}

template <typename Data>
concept CanBeSentLater = requires(ProcessGroup group, Data&& data) {
  group.isend(std::forward<Data>(data), GroupRank{1});
  group.all_reduce_async(std::forward<Data>(data), Buffer{});
  P2POp::send(std::forward<Data>(data), GroupRank{1});
};

TEST(WorkerTypes, TemporariesCannotBeSentAsynchronously) {
  static_assert(CanBeSentLater<std::vector<int>&> && CanBeSentLater<const std::vector<int>&>);
  static_assert(CanBeSentLater<std::span<const int>> && CanBeSentLater<Buffer>);
  static_assert(!CanBeSentLater<std::vector<int>> && !CanBeSentLater<std::array<int, 3>>);
}

// ---- 16 bit floats: every value of each there and back, and against a reference that searches

// A float16 or bfloat16 by its definition.
double value_of_bits(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double scaled = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * std::ldexp(scaled, std::max(exponent, 1) - bias - fraction_bits);
}

// Nearest, ties to even, by a search of the positive values.
uint16_t nearest_bits(float value, int exponent_bits) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double wanted = std::fabs(static_cast<double>(value));
  const int infinity = ((1 << exponent_bits) - 1) << (15 - exponent_bits);
  int low = 0;
  int high = infinity;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (value_of_bits(static_cast<uint16_t>(middle), exponent_bits) <= wanted ? low : high) = middle;
  }
  const double below = value_of_bits(static_cast<uint16_t>(low), exponent_bits);
  // Above the largest number, as if another one followed at the same distance.
  const double step = value_of_bits(static_cast<uint16_t>(low), exponent_bits) -
                      value_of_bits(static_cast<uint16_t>(low == 0 ? 0 : low - 1), exponent_bits);
  const double above =
      high == infinity ? below + step : value_of_bits(static_cast<uint16_t>(high), exponent_bits);
  if (std::isinf(wanted)) return static_cast<uint16_t>(sign | infinity);
  const double up = above - wanted;
  const double down = wanted - below;
  const bool take_high = up < down || (up == down && low % 2 == 1);
  return static_cast<uint16_t>(sign | (take_high ? high : low));
}

template <typename Half>
constexpr int kExponentBits = std::is_same_v<Half, float16> ? 5 : 8;

template <typename Half>
void expect_all_bits_survive() {
  int nans = 0;
  for (int bits = 0; bits <= 0xffff; ++bits) {
    const Half half = Half::from_bits(static_cast<uint16_t>(bits));
    const auto value = static_cast<float>(half);
    const double expected = value_of_bits(static_cast<uint16_t>(bits), kExponentBits<Half>);
    if (std::isnan(expected)) {
      ++nans;
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(Half(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(Half(value).bits(), bits);
  }
  std::printf("65536 values, %d of them NaN\n", nans);
}

template <typename Half>
void expect_nearest(float value) {
  ASSERT_EQ(Half(value).bits(), nearest_bits(value, kExponentBits<Half>))
      << value << " = " << std::bit_cast<uint32_t>(value);
}

// Rounding goes wrong at the middle between two values and right beside it.
template <typename Half>
void expect_middles_rounded_to_even() {
  const int infinity = ((1 << kExponentBits<Half>)-1) << (15 - kExponentBits<Half>);
  for (int bits = 0; bits + 1 < infinity; ++bits) {
    const double low = value_of_bits(static_cast<uint16_t>(bits), kExponentBits<Half>);
    const double high = value_of_bits(static_cast<uint16_t>(bits + 1), kExponentBits<Half>);
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.F), std::nextafter(middle, 1e38F)}) {
      expect_nearest<Half>(value);
      expect_nearest<Half>(-value);
    }
  }
}

template <typename Half>
void expect_random_values_rounded() {
  constexpr uint32_t kSeed = 20240607;
  constexpr int kValues = 300000;
  std::mt19937 random(kSeed);
  for (int i = 0; i < kValues; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) expect_nearest<Half>(value);
  }
  std::printf("%d random floats, seed %u\n", kValues, kSeed);
}

TEST(WorkerTypes, EveryFloat16SurvivesConversion) {
  expect_all_bits_survive<float16>();
}

TEST(WorkerTypes, EveryBfloat16SurvivesConversion) {
  expect_all_bits_survive<bfloat16>();
}

TEST(WorkerTypes, Float16RoundsToNearestEven) {
  expect_middles_rounded_to_even<float16>();
  expect_random_values_rounded<float16>();
}

TEST(WorkerTypes, Bfloat16RoundsToNearestEven) {
  expect_middles_rounded_to_even<bfloat16>();
  expect_random_values_rounded<bfloat16>();
}

TEST(WorkerTypes, HalvesHandleInfinityNanAndTheSmallestValue) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float16(infinity).bits(), 0x7c00);
  EXPECT_EQ(float16(-infinity).bits(), 0xfc00);
  EXPECT_EQ(float16(65504.F).bits(), 0x7bff);
  EXPECT_EQ(float16(65519.996F).bits(), 0x7bff);
  EXPECT_EQ(float16(65520.F).bits(), 0x7c00);
  EXPECT_EQ(float16(-0.F).bits(), 0x8000);
  EXPECT_EQ(float16(0x1p-24F).bits(), 1);
  EXPECT_EQ(float16(0x1p-25F).bits(), 0) << "a tie: to even";
  EXPECT_EQ(float16(0x1.002p-25F).bits(), 1);
  EXPECT_EQ(bfloat16(1.F).bits(), 0x3f80);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits(), 0x7f80);
  // A NaN whose payload lies in the half that is cut off must not become infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0xff800001U)))));
}

// ---- ranks and errors

TEST(WorkerTypes, RanksAreOrderedAndUnsetIsNoRank) {
  EXPECT_EQ(GlobalRank().value, -1);
  EXPECT_LT(GlobalRank{1}, GlobalRank{2});
  EXPECT_EQ(GroupRank{3}, GroupRank{3});
}

TEST(WorkerTypes, AnErrorKeepsWhatItWasGivenThroughCopies) {
  const DistributedError made(ErrorCode::peer_failed, "all_reduce 17 of group world: rank 2 died",
                              "all_reduce", "world", {GlobalRank{2}});
  const DistributedError copy = made;
  EXPECT_STREQ(copy.what(), "all_reduce 17 of group world: rank 2 died");
  EXPECT_EQ(copy.code(), ErrorCode::peer_failed);
  EXPECT_EQ(copy.operation(), "all_reduce");
  EXPECT_EQ(copy.group(), "world");
  EXPECT_EQ(copy.failed_ranks(), std::vector<GlobalRank>{GlobalRank{2}});
  try {
    throw made;
  } catch (const std::runtime_error& caught) {
    EXPECT_STREQ(caught.what(), made.what());
  }
}

}  // namespace
}  // namespace muster
