#include "worker_lib/reduction/reduce_variants.h"

#if defined(MUSTER_HAVE_X86_LOOPS)

#include <immintrin.h>

#define MUSTER_LOOPS avx2
#define MUSTER_TARGET [[gnu::target("avx2,f16c")]]

namespace muster::worker::avx2 {
namespace {

constexpr size_t kLanes = 8;

MUSTER_TARGET void widen_lanes(float* out, const uint16_t* in) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
}
MUSTER_TARGET void narrow_lanes(uint16_t* out, const float* in) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace
}  // namespace muster::worker::avx2

#include "worker_lib/reduction/reduce_loops.h"

#endif
