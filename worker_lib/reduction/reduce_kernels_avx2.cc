#include "rendezvous/base/error.h"
#include "worker_lib/reduction/reduce_variants.h"

#if defined(MUSTER_HAVE_AVX2_LOOPS)

#include <immintrin.h>

#define MUSTER_LOOPS avx2
#define MUSTER_TARGET [[gnu::target("avx2,f16c")]]

namespace muster::worker::avx2 {
namespace {

constexpr size_t kLanes = 8;

// The remainder goes through a padded block, so that every element is converted alike.
MUSTER_TARGET void widen_half(float* out, const uint16_t* in, size_t count) {
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

MUSTER_TARGET void narrow_half(uint16_t* out, const float* in, size_t count) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
  if (i == count) return;
  alignas(32) float rest[kLanes] = {};
  alignas(16) uint16_t narrow[kLanes];
  __builtin_memcpy(rest, in + i, (count - i) * sizeof(float));
  _mm_store_si128(reinterpret_cast<__m128i*>(narrow),
                  _mm256_cvtps_ph(_mm256_load_ps(rest), _MM_FROUND_TO_NEAREST_INT));
  __builtin_memcpy(out + i, narrow, (count - i) * sizeof(uint16_t));
}

}  // namespace
}  // namespace muster::worker::avx2

#include "worker_lib/reduction/reduce_loops.h"

namespace muster::worker {

void reduce_buffers_avx2(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                         size_t inputs, size_t count) {
  avx2::find_loop(dtype, op)(out, in, inputs, count);
}

void divide_avx2(DType dtype, std::byte* data, size_t count, int by) {
  avx2::run_divide(dtype, data, count, by);
}

}  // namespace muster::worker

#else

namespace muster::worker {

void reduce_buffers_avx2(DType, ReduceOp, std::byte*, const std::byte* const*, size_t, size_t) {
  CHECK(false);
}

void divide_avx2(DType, std::byte*, size_t, int) {
  CHECK(false);
}

}  // namespace muster::worker

#endif
