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

#if __cplusplus < 201703L
#error \
    "muster's C++ headers need C++17: compile with -std=c++17 (C programs include <muster/muster.h>)"
#include "a C++17 compiler"  // Ends the compilation: errors below would only follow from this one.
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#if __has_include(<version>)
#include <version>
#endif
// Where the standard library has std::span, ranges and <=>.
#if defined(__cpp_lib_span) && defined(__cpp_lib_ranges) && defined(__cpp_lib_three_way_comparison)
#define MUSTER_HAS_RANGES 1
#include <compare>
#include <ranges>
#include <span>
#else
#define MUSTER_HAS_RANGES 0
#include <string_view>
#endif

namespace muster {

#if MUSTER_HAS_RANGES

template <typename T>
using span = std::span<T>;

namespace detail {

// True if a range is one block of memory of known size, which outlives the range because that is an
// lvalue or a view.
template <typename Range>
inline constexpr bool is_block_v =
    std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range>;
inline constexpr auto& data_of = std::ranges::data;
inline constexpr auto& size_of_range = std::ranges::size;

}  // namespace detail

#else

template <typename T>
class span;

namespace detail {

template <typename Range>
inline constexpr bool is_view_v = false;
template <typename T>
inline constexpr bool is_view_v<span<T>> = true;
template <>
inline constexpr bool is_view_v<std::string_view> = true;

template <typename Range, typename = void>
inline constexpr bool is_block_v = false;
template <typename Range>
inline constexpr bool is_block_v<
    Range,
    std::enable_if_t<std::is_same_v<decltype(*std::begin(std::declval<Range&>())),
                                    decltype(*std::data(std::declval<Range&>()))> &&
                     std::is_convertible_v<decltype(std::size(std::declval<Range&>())), size_t> &&
                     std::is_convertible_v<typename std::iterator_traits<decltype(std::begin(
                                               std::declval<Range&>()))>::iterator_category,
                                           std::random_access_iterator_tag>>> =
    std::is_lvalue_reference_v<Range> || is_view_v<std::remove_cv_t<Range>>;

template <typename Range>
constexpr auto data_of(Range& range) {
  return std::data(range);
}
template <typename Range>
constexpr auto size_of_range(Range& range) {
  return std::size(range);
}

}  // namespace detail

// The part of C++20's std::span that this library uses.
template <typename T>
class span {
 public:
  constexpr span() = default;
  constexpr span(T* data, size_t size) : data_(data), size_(size) {}
  // Takes a contiguous range of T; a temporary that owns its elements only where T is const.
  template <typename Range,
            std::enable_if_t<
                (detail::is_block_v<Range> || (std::is_const_v<T> && detail::is_block_v<Range&>)) &&
                    std::is_convertible_v<
                        std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))> (*)[],
                        T (*)[]>,
                int> = 0>
  constexpr span(Range&& range) : data_(std::data(range)), size_(std::size(range)) {}  // NOLINT

  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }
  constexpr T& operator[](size_t i) const { return data_[i]; }
  // REQUIRES: start + size <= size().
  constexpr span subspan(size_t start, size_t size) const { return {data_ + start, size}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

#endif

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

// std::bit_cast of C++20.
template <typename To, typename From>
To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
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

// The comparisons of a type with one member.
#if MUSTER_HAS_RANGES
#define MUSTER_COMPARED_BY(Type, member) \
  friend constexpr bool operator==(const Type&, const Type&) = default;
#define MUSTER_ORDERED_BY(Type, member) \
  friend constexpr auto operator<=>(const Type&, const Type&) = default;
#else
#define MUSTER_COMPARISON(Type, op, member)           \
  friend constexpr bool operator op(Type a, Type b) { \
    return a.member op b.member;                      \
  }
#define MUSTER_COMPARED_BY(Type, member) \
  MUSTER_COMPARISON(Type, ==, member) MUSTER_COMPARISON(Type, !=, member)
#define MUSTER_ORDERED_BY(Type, member) \
  MUSTER_COMPARED_BY(Type, member)      \
  MUSTER_COMPARISON(Type, <, member)    \
  MUSTER_COMPARISON(Type, >, member)    \
  MUSTER_COMPARISON(Type, <=, member) MUSTER_COMPARISON(Type, >=, member)
#endif

// A rank in the job: RANK, 0 to WORLD_SIZE - 1. The same in every group.
struct GlobalRank {
  int value = -1;
  MUSTER_ORDERED_BY(GlobalRank, value)
};

// A rank in one group, 0 to size - 1. A type of its own, since rank 1 of a group may be rank 5 of
// the job: roots and peers of a group's operations are always ranks of the group.
struct GroupRank {
  int value = -1;
  MUSTER_ORDERED_BY(GroupRank, value)
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
  MUSTER_COMPARED_BY(float16, bits_)

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
  MUSTER_COMPARED_BY(bfloat16, bits_)

 private:
  uint16_t bits_ = 0;
};

#undef MUSTER_ORDERED_BY
#undef MUSTER_COMPARED_BY
#undef MUSTER_COMPARISON

// Adds just under half of the part cut off from the float32's bits, and one more if the kept part
// is odd (ties to even). A carry correctly goes into the exponent, up to infinity.
inline bfloat16::bfloat16(float value) {
  const auto bits = detail::bits_as<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {  // NaN, also for compilers that may assume there is none.
    bits_ = static_cast<uint16_t>(bits >> 16 | 0x40);  // Quiet: the payload may be cut away.
    return;
  }
  bits_ = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline bfloat16::operator float() const {
  return detail::bits_as<float>(uint32_t{bits_} << 16);
}

// Uses integers and one float addition, which rounds as IEEE 754 says (in likely rounding modes).
inline float16::float16(float value) {
  const auto bits = detail::bits_as<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN
    bits_ = static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  } else if (magnitude >= 0x477ff000) {  // 65520 and above: infinity.
    bits_ = static_cast<uint16_t>(sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // Below 2^-14: in units of 2^-24. Adding 0.5 lets the
    // float adder shift and round.
    const float shifted = detail::bits_as<float>(magnitude) + 0.5F;
    bits_ = static_cast<uint16_t>(sign | (detail::bits_as<uint32_t>(shifted) - 0x3f000000));
  } else {  // The exponent's bias goes from 127 to 15.
    const uint32_t rounded = magnitude - (uint32_t{112} << 23) + 0xfff + (magnitude >> 13 & 1);
    bits_ = static_cast<uint16_t>(sign | rounded >> 13);
  }
}

inline float16::operator float() const {
  const uint32_t sign = uint32_t{bits_} << 16 & 0x80000000;
  const uint32_t exponent = bits_ >> 10 & 0x1f;
  const uint32_t fraction = bits_ & 0x3ff;
  if (exponent == 0x1f) return detail::bits_as<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return detail::bits_as<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return detail::bits_as<float>(sign | detail::bits_as<uint32_t>(magnitude));
}

namespace detail {

template <typename T>
constexpr int dtype_number() {
  if constexpr (std::is_void_v<T>) {
    return -1;
  } else if constexpr (std::is_same_v<T, float16>) {
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

template <typename T>
inline constexpr bool is_element_v = dtype_number<std::remove_cv_t<T>>() >= 0;

// The type of the elements of a range that is one block of memory; of others void.
template <typename Range, bool = is_block_v<Range>>
struct Block {
  using element = void;
};
template <typename Range>
struct Block<Range, true> {
  using element = std::remove_pointer_t<decltype(data_of(std::declval<Range&>()))>;
};
template <typename Range>
using element_t = typename Block<Range>::element;

}  // namespace detail

// A C++ type that has a DType: float16, bfloat16, float, double, the signed integers, and unsigned
// bytes (including std::byte). Not bool, and not the larger unsigned integers. Plain char is int8
// where it is signed (x86) and uint8 where it is not (ARM); in a job with both kinds of machine,
// use signed char, unsigned char or std::byte.
#if MUSTER_HAS_RANGES
template <typename T>
concept Element = detail::is_element_v<T>;
#endif

template <typename T, std::enable_if_t<detail::is_element_v<T>, int> = 0>
inline constexpr DType dtype_of = static_cast<DType>(detail::dtype_number<std::remove_cv_t<T>>());

struct Device {
  enum class Kind : uint8_t { cpu = 0, cuda = 1 };

  Kind kind = Kind::cpu;
  int index = 0;  // cuda: index among the devices that this process sees (CUDA_VISIBLE_DEVICES).

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index) { return {Kind::cuda, index}; }
  friend constexpr bool operator==(const Device& a, const Device& b) {
    return a.kind == b.kind && a.index == b.index;
  }
  friend constexpr bool operator!=(const Device& a, const Device& b) { return !(a == b); }
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
  template <typename Range,
            std::enable_if_t<detail::is_element_v<detail::element_t<Range>>, int> = 0>
  constexpr ConstBuffer(Range&& range)  // NOLINT: converts on purpose.
      : data(detail::data_of(range)),
        count(static_cast<size_t>(detail::size_of_range(range))),
        dtype(dtype_of<detail::element_t<Range>>) {}

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
  template <typename Range, std::enable_if_t<detail::is_element_v<detail::element_t<Range>> &&
                                                 !std::is_const_v<detail::element_t<Range>>,
                                             int> = 0>
  constexpr Buffer(Range&& range)  // NOLINT: converts on purpose.
      : data(detail::data_of(range)),
        count(static_cast<size_t>(detail::size_of_range(range))),
        dtype(dtype_of<detail::element_t<Range>>) {}

  constexpr operator ConstBuffer() const { return {data, count, dtype, device}; }
  size_t bytes() const { return count * size_of(dtype); }
};

}  // namespace muster
