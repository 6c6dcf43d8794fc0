#include "worker_lib/reduction/reduce_variants.h"

#if defined(MUSTER_HAVE_AVX2_LOOPS)

#include <immintrin.h>

#define MUSTER_LOOPS avx2
#define MUSTER_TARGET [[gnu::target("avx2,f16c")]]

namespace muster::worker::avx2 {
namespace {

constexpr size_t kLanes = 8;

// Converts the remainder through a padded block, with the same instructions as the rest.
struct Fp16 {
  MUSTER_TARGET static void widen(float* out, const uint16_t* in, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
    if (i == count) return;
    alignas(16) uint16_t rest[kLanes] = {};
    alignas(32) float wide[kLanes];
    __builtin_memcpy(rest, in + i, (count - i) * sizeof(uint16_t));
    _mm256_store_ps(wide, _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<__m128i*>(rest))));
    __builtin_memcpy(out + i, wide, (count - i) * sizeof(float));
  }

  MUSTER_TARGET static void narrow(uint16_t* out, const float* in, size_t count) {
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
    }
    if (i == count) return;
    alignas(32) float rest[kLanes] = {};
    alignas(16) uint16_t halves[kLanes];
    __builtin_memcpy(rest, in + i, (count - i) * sizeof(float));
    _mm_store_si128(reinterpret_cast<__m128i*>(halves),
                    _mm256_cvtps_ph(_mm256_load_ps(rest), _MM_FROUND_TO_NEAREST_INT));
    __builtin_memcpy(out + i, halves, (count - i) * sizeof(uint16_t));
  }
};

}  // namespace
}  // namespace muster::worker::avx2

#include "worker_lib/reduction/reduce_loops.h"

#endif
