// Arguments of a process group's operations: element types, reductions, ranks, and views of memory.
//
//   #include <vector>
//   #include <muster/process_group.h>
//
//   std::vector<float> gradients(1000);
//   muster::world().all_reduce(gradients, muster::ReduceOp::average);  // A vector is a Buffer.
//   muster::Buffer weights{pointer, 1000, muster::DType::bfloat16, muster::Device::cuda(0)};
//   muster::world().broadcast(weights, muster::GroupRank{0});
//
// A view owns nothing: the memory must stay alive and, unless an operation says otherwise,
// untouched until the operation is complete. So a temporary that owns its elements does not convert
// (a temporary std::span does). Plain values: any thread may copy them.
#pragma once

#if __cplusplus < 202002L
#error \
    "muster's C++ headers need C++20: compile with -std=c++20 (C programs include <muster/muster.h>)"
#include "a C++20 compiler"  // Ends the compilation: errors below would only follow from this one.
#endif

#include <bit>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#if defined(__GNUC__)
#define MUSTER_API __attribute__((visibility("default")))
#else
#define MUSTER_API
#endif

namespace muster {

// Element types. The numbers are part of the C ABI.
enum class DType : uint8_t {
  int8 = 0,
  uint8 = 1,
  int16 = 2,
  int32 = 3,
  int64 = 4,
  float16 = 5,   // IEEE 754 binary16.
  bfloat16 = 6,  // The upper half of a float32.
  float32 = 7,
  float64 = 8,
};

namespace detail {

// Numbers from the wire or the C functions may be out of range.
template <typename Enum, size_t n>
constexpr const char* name_in(const char* const (&names)[n], Enum value) {
  const auto i = static_cast<size_t>(value);
  return i < n ? names[i] : "unknown";
}

}  // namespace detail

// Returns the bytes of one element: 1, 2, 4 or 8.
constexpr size_t size_of(DType dtype) {
  constexpr uint8_t kBytes[] = {1, 1, 2, 4, 8, 2, 2, 4, 8};
  const auto i = static_cast<size_t>(dtype);
  return i < sizeof kBytes ? kBytes[i] : 0;
}

constexpr const char* name_of(DType dtype) {
  return detail::name_in(
      {"int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"},
      dtype);
}

// Combines the elements of all ranks. `average` is the sum divided by the number of ranks, for
// integers rounded towards zero. band, bor and bxor are refused for floats
// (ErrorCode::invalid_argument). Integer sums and products wrap around (two's complement). Sums of
// float16 and bfloat16 on CPUs are rounded to that type after every addition, so their error grows
// with the number of ranks, not with the number of elements. Averages do not overflow on the way,
// except those of int64; between nodes float16 is divided first, so that at n ranks numbers below
// 1.2e-4 n lose digits.
enum class ReduceOp : uint8_t {
  sum = 0,
  average = 1,
  product = 2,
  min = 3,
  max = 4,
  band = 5,
  bor = 6,
  bxor = 7,
};

constexpr const char* name_of(ReduceOp op) {
  return detail::name_in({"sum", "average", "product", "min", "max", "band", "bor", "bxor"}, op);
}

// A rank in the job: RANK, 0 to WORLD_SIZE - 1. The same in every group.
struct GlobalRank {
  int value = -1;
  friend auto operator<=>(const GlobalRank&, const GlobalRank&) = default;
};

// A rank in one group, 0 to size - 1. A type of its own, since rank 1 of a group may be rank 5 of
// the job: roots and peers of a group's operations are always ranks of the group.
struct GroupRank {
  int value = -1;
  friend auto operator<=>(const GroupRank&, const GroupRank&) = default;
};

// The two 16-bit floats as storage, with conversions that round to nearest, ties to even.
class float16 {
 public:
  float16() = default;
  explicit float16(float value);
  explicit operator float() const;
  static constexpr float16 from_bits(uint16_t bits) {
    float16 made;
    made.bits_ = bits;
    return made;
  }
  constexpr uint16_t bits() const { return bits_; }
  friend bool operator==(const float16&, const float16&) = default;  // Compares the bits.

 private:
  uint16_t bits_ = 0;
};

class bfloat16 {
 public:
  bfloat16() = default;
  explicit bfloat16(float value);
  explicit operator float() const;
  static constexpr bfloat16 from_bits(uint16_t bits) {
    bfloat16 made;
    made.bits_ = bits;
    return made;
  }
  constexpr uint16_t bits() const { return bits_; }
  friend bool operator==(const bfloat16&, const bfloat16&) = default;  // Compares the bits.

 private:
  uint16_t bits_ = 0;
};

// Adds just under half of the part cut off from the float32's bits, and one more if the kept part
// is odd (ties to even). A carry correctly goes into the exponent, up to infinity.
inline bfloat16::bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {  // NaN, also for compilers that may assume there is none.
    bits_ = static_cast<uint16_t>(bits >> 16 | 0x40);  // Quiet: the payload may be cut away.
    return;
  }
  bits_ = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline bfloat16::operator float() const {
  return std::bit_cast<float>(uint32_t{bits_} << 16);
}

// Uses integers and one float addition, which rounds as IEEE 754 says (in likely rounding modes).
inline float16::float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    bits_ = static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  } else if (magnitude >= 0x477ff000) {  // 65520 and above: infinity.
    bits_ = static_cast<uint16_t>(sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // Below 2^-14: in units of 2^-24. Adding 0.5 lets the
    // float adder shift and round.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits_ = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  } else {  // The exponent's bias goes from 127 to 15.
    const uint32_t rounded = magnitude - (uint32_t{112} << 23) + 0xfff + (magnitude >> 13 & 1);
    bits_ = static_cast<uint16_t>(sign | rounded >> 13);
  }
}

inline float16::operator float() const {
  const uint32_t sign = uint32_t{bits_} << 16 & 0x80000000;
  const uint32_t exponent = bits_ >> 10 & 0x1f;
  const uint32_t fraction = bits_ & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

namespace detail {

template <typename T>
consteval int dtype_number() {
  if constexpr (std::is_same_v<T, float16>) {
    return static_cast<int>(DType::float16);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return static_cast<int>(DType::bfloat16);
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<int>(DType::float32);
  } else if constexpr (std::is_same_v<T, double>) {
    return static_cast<int>(DType::float64);
  } else if constexpr (std::is_same_v<T, std::byte> ||
                       (std::is_integral_v<T> && sizeof(T) == 1 && std::is_unsigned_v<T> &&
                        !std::is_same_v<T, bool>)) {
    return static_cast<int>(DType::uint8);
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return static_cast<int>(sizeof(T) == 1   ? DType::int8
                            : sizeof(T) == 2 ? DType::int16
                            : sizeof(T) == 4 ? DType::int32
                                             : DType::int64);
  } else {
    return -1;
  }
}

}  // namespace detail

// A C++ type that has a DType: float16, bfloat16, float, double, the signed integers, and unsigned
// bytes (including std::byte). Not bool, and not the larger unsigned integers. Plain char is int8
// where it is signed (x86) and uint8 where it is not (ARM); in a job with both kinds of machine,
// use signed char, unsigned char or std::byte.
template <typename T>
concept Element = detail::dtype_number<std::remove_cv_t<T>>() >= 0;

template <Element T>
inline constexpr DType dtype_of = static_cast<DType>(detail::dtype_number<std::remove_cv_t<T>>());

struct Device {
  enum class Kind : uint8_t { cpu = 0, cuda = 1 };

  Kind kind = Kind::cpu;
  int index = 0;  // cuda: index among the devices that this process sees (CUDA_VISIBLE_DEVICES).

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index) { return {Kind::cuda, index}; }
  friend bool operator==(const Device&, const Device&) = default;
};

// Memory that an operation reads: `count` elements (not bytes) at `data`, contiguous and aligned
// for their type. Any contiguous range of elements converts (std::vector, std::array, std::span),
// except temporaries that own their elements.
struct ConstBuffer {
  const void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::uint8;
  Device device;

  constexpr ConstBuffer() = default;
  constexpr ConstBuffer(const void* data_, size_t count_, DType dtype_, Device device_ = {})
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  template <std::ranges::contiguous_range Range>
    requires std::ranges::sized_range<Range> && Element<std::ranges::range_value_t<Range>> &&
                 std::ranges::borrowed_range<Range>
  constexpr ConstBuffer(Range&& range)  // NOLINT: converts on purpose.
      : data(std::ranges::data(range)),
        count(static_cast<size_t>(std::ranges::size(range))),
        dtype(dtype_of<std::ranges::range_value_t<Range>>) {}

  size_t bytes() const { return count * size_of(dtype); }
};

// Memory that an operation writes, or reads and writes.
struct Buffer {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::uint8;
  Device device;

  constexpr Buffer() = default;
  constexpr Buffer(void* data_, size_t count_, DType dtype_, Device device_ = {})
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  template <std::ranges::contiguous_range Range>
    requires std::ranges::sized_range<Range> && Element<std::ranges::range_value_t<Range>> &&
                 (!std::is_const_v<
                     std::remove_reference_t<std::ranges::range_reference_t<Range>>>) &&
                 std::ranges::borrowed_range<Range>
  constexpr Buffer(Range&& range)  // NOLINT: converts on purpose.
      : data(std::ranges::data(range)),
        count(static_cast<size_t>(std::ranges::size(range))),
        dtype(dtype_of<std::ranges::range_value_t<Range>>) {}

  constexpr operator ConstBuffer() const { return {data, count, dtype, device}; }
  size_t bytes() const { return count * size_of(dtype); }
};

}  // namespace muster
