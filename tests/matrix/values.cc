#include "tests/matrix/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace muster::matrix {
namespace {

template <typename T>
struct Type {
  using type = T;
};

template <typename Body>
auto with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::int8:
      return body(Type<int8_t>{});
    case DType::uint8:
      return body(Type<uint8_t>{});
    case DType::int16:
      return body(Type<int16_t>{});
    case DType::int32:
      return body(Type<int32_t>{});
    case DType::int64:
      return body(Type<int64_t>{});
    case DType::float16:
      return body(Type<float16>{});
    case DType::bfloat16:
      return body(Type<bfloat16>{});
    case DType::float32:
      return body(Type<float>{});
    case DType::float64:
      break;
  }
  return body(Type<double>{});
}

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <typename T>
double to_double(T value) {
  if constexpr (kIsHalf<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
T from_double(double value) {
  if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Half the distance from 1 to the next value above it.
template <typename T>
constexpr double unit_roundoff() {
  if constexpr (std::is_same_v<T, float16>) return 0x1p-11;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  return 0x1p-53;
}

// Smallest positive value; results near zero are rounded to a multiple of it.
template <typename T>
constexpr double smallest_step() {
  if constexpr (std::is_same_v<T, float16>) return 0x1p-24;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-133;
  if constexpr (std::is_same_v<T, float>) return 0x1p-149;
  return std::numeric_limits<double>::denorm_min();
}

bool moves_only(const Case& what) {
  return what.op != Op::reduce && what.op != Op::all_reduce && what.op != Op::reduce_scatter &&
         what.op != Op::reduce_scatter_v;
}

template <typename T>
T bits_of(uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

// Integers overflow, since overflow wraps. Values are small in an average, whose sum must fit, and
// in floats, whose sums and products must be exact in 8 bits.
template <typename T>
T element(const Case& what, uint64_t random) {
  if (moves_only(what)) return bits_of<T>(random);
  if constexpr (std::is_integral_v<T>) {
    if (what.reduce != ReduceOp::average) return bits_of<T>(random);
    const int64_t low = std::is_signed_v<T> ? -20 : 0;
    return static_cast<T>(low + static_cast<int64_t>(random % 41));
  } else {
    if (what.values == Values::reals) {
      return from_double<T>(static_cast<double>(random >> 11) * 0x1p-52 - 1.0);
    }
    return from_double<T>(static_cast<double>(static_cast<int64_t>(random % 5) - 2));
  }
}

uint64_t random_of(uint64_t seed, int rank, size_t index) {
  return mixed(seed + static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15u, index);
}

template <typename T>
T integers_reduced(ReduceOp op, T a, T b) {
  using Bits = std::make_unsigned_t<T>;
  const uint64_t x = static_cast<Bits>(a);
  const uint64_t y = static_cast<Bits>(b);
  switch (op) {
    case ReduceOp::product:
      return static_cast<T>(static_cast<Bits>(x * y));
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return static_cast<T>(static_cast<Bits>(x & y));
    case ReduceOp::bor:
      return static_cast<T>(static_cast<Bits>(x | y));
    case ReduceOp::bxor:
      return static_cast<T>(static_cast<Bits>(x ^ y));
    default:
      return static_cast<T>(static_cast<Bits>(x + y));
  }
}

double doubles_reduced(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::product:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// Divides with the one rounding of an average: in the type itself, half types in float.
template <typename T>
T divided(double sum, int members) {
  if constexpr (std::is_same_v<T, double>) return sum / members;
  return from_double<T>(static_cast<double>(static_cast<float>(sum) / static_cast<float>(members)));
}

template <typename T>
T reduced_exactly(const Case& what, uint64_t seed, size_t index) {
  T first = element<T>(what, random_of(seed, 0, index));
  if constexpr (std::is_integral_v<T>) {
    for (int r = 1; r < what.members; ++r) {
      first = integers_reduced(what.reduce, first, element<T>(what, random_of(seed, r, index)));
    }
    return what.reduce == ReduceOp::average ? static_cast<T>(first / static_cast<T>(what.members))
                                            : first;
  } else {
    double all = to_double(first);
    for (int r = 1; r < what.members; ++r) {
      all =
          doubles_reduced(what.reduce, all, to_double(element<T>(what, random_of(seed, r, index))));
    }
    return what.reduce == ReduceOp::average ? divided<T>(all, what.members) : from_double<T>(all);
  }
}

// Each of the n - 1 steps and the division may be off by a unit roundoff of its operand, which is
// at most the sum of all magnitudes (Higham 2002, section 4.2); doubled as a margin.
template <typename T>
Tolerated reduced_roughly(const Case& what, uint64_t seed, size_t index) {
  double value = what.reduce == ReduceOp::product ? 1.0 : 0.0;
  double magnitude = value;
  for (int r = 0; r < what.members; ++r) {
    const double x = to_double(element<T>(what, random_of(seed, r, index)));
    value = doubles_reduced(what.reduce, value, x);
    magnitude = doubles_reduced(what.reduce, magnitude, std::abs(x));
  }
  if (what.reduce == ReduceOp::average) {
    value /= what.members;
    magnitude /= what.members;
  }
  const double steps = 2.0 * what.members;
  return {value, steps * (unit_roundoff<T>() * magnitude + smallest_step<T>())};
}

}  // namespace

uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t z = a ^ (b + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void fill(const Case& what, uint64_t seed, int rank, size_t first, size_t count, std::byte* to) {
  with_type(what.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (size_t i = 0; i < count; ++i) {
      const T value = element<T>(what, random_of(seed, rank, first + i));
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  });
}

void reduce_exactly(const Case& what, uint64_t seed, size_t first, size_t count, std::byte* to) {
  with_type(what.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (size_t i = 0; i < count; ++i) {
      const T value = reduced_exactly<T>(what, seed, first + i);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  });
}

std::vector<Tolerated> reduce_roughly(const Case& what, uint64_t seed, size_t first, size_t count) {
  std::vector<Tolerated> all(count);
  with_type(what.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (!std::is_integral_v<T>) {
      for (size_t i = 0; i < count; ++i)
        all[i] = reduced_roughly<T>(what, seed, first + i);
    }
  });
  return all;
}

double as_double(DType dtype, const std::byte* at) {
  return with_type(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T value;
    std::memcpy(static_cast<void*>(&value), at, sizeof(T));
    return to_double(value);
  });
}

}  // namespace muster::matrix
