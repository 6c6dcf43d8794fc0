// The loops of reduce_kernels.h, compiled once for each instruction set. The including file defines
//
//   MUSTER_LOOPS        the namespace to put them in (baseline, avx2, avx512)
//   MUSTER_TARGET       an attribute for every function that loops
//   MUSTER_ONLY_BF16    if there are to be loops of bfloat16 only; otherwise, in that namespace,
//   kLanes, widen_lanes(), narrow_lanes()  conversions of so many float16
//
// Compilers turn plain loops over plain pointers into vector code. The only obstacle is that `out`
// may be one of the inputs; MUSTER_INDEPENDENT says that this is harmless.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "muster/types.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/reduction/reduce_variants.h"

#if defined(__clang__)
#define MUSTER_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
// Silences warnings about loops that are not vectorised without optimisation or with sanitizers.
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define MUSTER_INDEPENDENT _Pragma("GCC ivdep")
// At -O2 GCC does not vectorise loops of unknown length.
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
#define MUSTER_INLINE [[gnu::always_inline]] static inline

namespace muster::worker::MUSTER_LOOPS {

// Type in which overflow wraps around; at least unsigned, since smaller ones are promoted to int.
template <typename T>
using Wrapping = std::conditional_t<
    std::is_integral_v<T>,
    std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned,
                       std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>>,
    T>;

struct Sum {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Product {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// Comparisons with NaN are false, so a NaN in `b` is taken too.
struct Min {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return ((a < b) | (a != a)) ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
};
struct Max {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return ((a > b) | (a != a)) ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
};
struct Band {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Bor {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Bxor {
  template <typename T>
  MUSTER_INLINE T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Inputs combined in one pass over memory, at most.
inline constexpr size_t kFused = 4;
// Elements per block if a pass needs a buffer: 4 KiB of floats.
inline constexpr size_t kBlock = 1024;

// Distance of explicit prefetches: processors prefetch by themselves, but not across a page. Saves
// a fifth of the time of an all_reduce of 64 MiB in shared memory.
inline constexpr size_t kAheadBytes = 2048;
// Smallest buffer to prefetch in: a smaller one is cached already, and half of the prefetches would
// lie past its end.
inline constexpr size_t kAskedForFromBytes = 4096;
// Bytes prefetched at a time. Loops over fewer elements than this holds are not vectorised.
inline constexpr size_t kStepBytes = 256;
inline constexpr size_t kLineBytes = 64;

template <typename T>
MUSTER_INLINE void ask_for(const T* step) {
  for (size_t i = 0; i < kStepBytes; i += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(step) + kAheadBytes + i);
}

template <typename T, typename Op, size_t N>
MUSTER_TARGET void fuse(T* out, const T* const* in, size_t count) {
  const T* a = in[0];
  const T* b = in[1];
  const T* c = in[N > 2 ? 2 : 0];
  const T* d = in[N > 3 ? 3 : 0];
  const auto combine = [=](size_t i) __attribute__((always_inline)) {
    T x = Op::apply(a[i], b[i]);
    if constexpr (N > 2) x = Op::apply(x, c[i]);
    if constexpr (N > 3) x = Op::apply(x, d[i]);
    return x;
  };
  constexpr size_t kStep = kStepBytes / sizeof(T);
  size_t done = 0;
  if (count >= kAskedForFromBytes / sizeof(T)) {
    for (; done + kStep <= count; done += kStep) {
      ask_for(a + done);
      ask_for(b + done);
      if constexpr (N > 2) ask_for(c + done);
      if constexpr (N > 3) ask_for(d + done);
      MUSTER_INDEPENDENT
      for (size_t i = done; i < done + kStep; ++i)
        out[i] = combine(i);
    }
  }
  MUSTER_INDEPENDENT
  for (size_t i = done; i < count; ++i)
    out[i] = combine(i);
}

template <typename T, typename Op>
MUSTER_TARGET void fuse_any(T* out, const T* const* in, size_t inputs, size_t count) {
  switch (inputs) {
    case 1:
      if (out != in[0]) copy_bytes(out, in[0], count * sizeof(T));
      return;
    case 2:
      return fuse<T, Op, 2>(out, in, count);
    case 3:
      return fuse<T, Op, 3>(out, in, count);
    default:
      return fuse<T, Op, 4>(out, in, count);
  }
}

// Combines more inputs than one pass takes, block by block through a separate partial result, since
// `out` may be one of the later inputs.
template <typename T, typename Op>
MUSTER_TARGET void fuse_many(T* out, const T* const* in, size_t inputs, size_t count) {
  T partial[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t here = count - start < kBlock ? count - start : kBlock;
    const T* now[kFused];
    for (size_t k = 0; k < kFused; ++k)
      now[k] = in[k] + start;
    fuse<T, Op, kFused>(partial, now, here);
    for (size_t done = kFused; done < inputs;) {
      const size_t more = inputs - done < kFused - 1 ? inputs - done : kFused - 1;
      now[0] = partial;
      for (size_t k = 0; k < more; ++k)
        now[k + 1] = in[done + k] + start;
      done += more;
      fuse_any<T, Op>(done == inputs ? out + start : partial, now, more + 1, here);
    }
  }
}

#if !defined(MUSTER_ONLY_BF16)
// Converts the remainder through a padded block, with the same instructions as the rest.
struct Fp16 {
  MUSTER_TARGET static void widen(float* out, const uint16_t* in, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      widen_lanes(out + i, in + i);
    if (i == count) return;
    uint16_t rest[kLanes] = {};
    float wide[kLanes];
    __builtin_memcpy(rest, in + i, (count - i) * sizeof(uint16_t));
    widen_lanes(wide, rest);
    __builtin_memcpy(out + i, wide, (count - i) * sizeof(float));
  }
  MUSTER_TARGET static void narrow(uint16_t* out, const float* in, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      narrow_lanes(out + i, in + i);
    if (i == count) return;
    float rest[kLanes] = {};
    uint16_t halves[kLanes];
    __builtin_memcpy(rest, in + i, (count - i) * sizeof(float));
    narrow_lanes(halves, rest);
    __builtin_memcpy(out + i, halves, (count - i) * sizeof(uint16_t));
  }
};
#endif

struct Bf16 {
  MUSTER_TARGET static void widen(float* out, const uint16_t* in, size_t count) {
    for (size_t i = 0; i < count; ++i)
      out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
  }
  // Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
  MUSTER_TARGET static void narrow(uint16_t* out, const float* in, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<uint32_t>(in[i]);
      const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
      const uint32_t nan = (bits >> 16) | 0x40U;
      out[i] = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
    }
  }
};

template <typename Half, typename Op>
MUSTER_TARGET void fuse_halves(uint16_t* out, const uint16_t* const* in, size_t inputs,
                               size_t count) {
  float sum[kBlock];
  float next[kBlock];
  uint16_t rounded[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t here = count - start < kBlock ? count - start : kBlock;
    Half::widen(sum, in[0] + start, here);
    for (size_t k = 1; k < inputs; ++k) {
      Half::widen(next, in[k] + start, here);
      for (size_t i = 0; i < here; ++i)
        sum[i] = Op::apply(sum[i], next[i]);
      Half::narrow(rounded, sum, here);
      if (k + 1 < inputs) Half::widen(sum, rounded, here);
    }
    copy_bytes(out + start, inputs > 1 ? rounded : in[0] + start, here * sizeof(uint16_t));
  }
}

// ---- division, for averages

// Divides whole numbers of less than 2^53, towards zero: a rounded quotient reaches no whole number
// that the exact one does not. Vectors have no division of integers.
template <typename T>
MUSTER_INLINE T quotient(double sum, double by) {
  return static_cast<T>(static_cast<int32_t>(sum / by));
}

template <typename T>
MUSTER_TARGET void divide_all(std::byte* data, size_t count, double by) {
  if constexpr (std::is_floating_point_v<T>) {
    auto* values = reinterpret_cast<T*>(data);
    const auto divisor = static_cast<T>(by);
    for (size_t i = 0; i < count; ++i)
      values[i] /= divisor;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= sizeof(int32_t)) {
    auto* values = reinterpret_cast<T*>(data);
    for (size_t i = 0; i < count; ++i)
      values[i] = quotient<T>(static_cast<double>(values[i]), by);
  } else if constexpr (std::is_integral_v<T>) {
    auto* values = reinterpret_cast<T*>(data);
    const auto divisor = static_cast<int64_t>(by);
    for (size_t i = 0; i < count; ++i)
      values[i] = static_cast<T>(static_cast<int64_t>(values[i]) / divisor);
  } else {
    auto* values = reinterpret_cast<uint16_t*>(data);
    float wide[kBlock];
    for (size_t start = 0; start < count; start += kBlock) {
      const size_t here = count - start < kBlock ? count - start : kBlock;
      T::widen(wide, values + start, here);
      divide_all<float>(reinterpret_cast<std::byte*>(wide), here, by);
      T::narrow(values + start, wide, here);
    }
  }
}

// ---- with the types as values

template <typename T, typename Op>
void run_loop(std::byte* out, const std::byte* const* in, size_t inputs, size_t count) {
  if constexpr (!std::is_arithmetic_v<T>) {
    fuse_halves<T, Op>(reinterpret_cast<uint16_t*>(out),
                       reinterpret_cast<const uint16_t* const*>(in), inputs, count);
  } else {
    const auto* typed_in = reinterpret_cast<const T* const*>(in);
    auto* typed_out = reinterpret_cast<T*>(out);
    if (inputs <= kFused) {
      fuse_any<T, Op>(typed_out, typed_in, inputs, count);
    } else {
      fuse_many<T, Op>(typed_out, typed_in, inputs, count);
    }
  }
}

// The sums of integers are exact: 2^21 inputs of 32 bits fit into a double's 53.
template <typename T>
MUSTER_TARGET void average_narrow(std::byte* out, const std::byte* const* in, size_t inputs,
                                  size_t count) {
  constexpr bool kWhole = std::is_integral_v<T>;
  using Stored = std::conditional_t<kWhole, T, uint16_t>;
  using Wide = std::conditional_t<kWhole, double, float>;
  Wide sum[kBlock];
  Wide next[kBlock];
  const auto divisor = static_cast<Wide>(inputs);
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t here = count - start < kBlock ? count - start : kBlock;
    for (size_t k = 0; k < inputs; ++k) {
      const auto* values = reinterpret_cast<const Stored*>(in[k]) + start;
      Wide* to = k == 0 ? sum : next;
      if constexpr (kWhole) {
        for (size_t i = 0; i < here; ++i)
          to[i] = values[i];
      } else {
        T::widen(to, values, here);
      }
      for (size_t i = 0; k > 0 && i < here; ++i)
        sum[i] += next[i];
    }
    auto* results = reinterpret_cast<Stored*>(out) + start;
    if constexpr (kWhole) {
      for (size_t i = 0; i < here; ++i)
        results[i] = quotient<T>(sum[i], divisor);
    } else {
      for (size_t i = 0; i < here; ++i)
        sum[i] /= divisor;
      T::narrow(results, sum, here);
    }
  }
}

template <typename T>
void run_average(std::byte* out, const std::byte* const* in, size_t inputs, size_t count) {
  if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, int64_t>) {
    run_loop<T, Sum>(out, in, inputs, count);
    divide_all<T>(out, count, static_cast<double>(inputs));
  } else {
    average_narrow<T>(out, in, inputs, count);
  }
}

template <typename T, typename Op>
constexpr ReduceLoop bitwise_loop() {
  if constexpr (std::is_integral_v<T>) {
    return run_loop<T, Op>;
  } else {
    return nullptr;
  }
}

template <typename T>
constexpr Loops kLoopsOf{
    {run_loop<T, Sum>, run_average<T>, run_loop<T, Product>, run_loop<T, Min>, run_loop<T, Max>,
     bitwise_loop<T, Band>(), bitwise_loop<T, Bor>(), bitwise_loop<T, Bxor>()},
    divide_all<T>};

const Loops* loops_of(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return &kLoopsOf<Bf16>;
#if !defined(MUSTER_ONLY_BF16)
    case DType::float16:
      return &kLoopsOf<Fp16>;
    case DType::int8:
      return &kLoopsOf<int8_t>;
    case DType::uint8:
      return &kLoopsOf<uint8_t>;
    case DType::int16:
      return &kLoopsOf<int16_t>;
    case DType::int32:
      return &kLoopsOf<int32_t>;
    case DType::int64:
      return &kLoopsOf<int64_t>;
    case DType::float32:
      return &kLoopsOf<float>;
    case DType::float64:
      return &kLoopsOf<double>;
#endif
    default:
      return nullptr;
  }
}

}  // namespace muster::worker::MUSTER_LOOPS

#if !defined(__clang__)
#pragma GCC pop_options
#endif
