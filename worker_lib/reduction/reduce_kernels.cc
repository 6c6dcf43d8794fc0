#include "worker_lib/reduction/reduce_kernels.h"

#include "rendezvous/base/error.h"
#include "worker_lib/reduction/reduce_variants.h"

#if defined(MUSTER_HAVE_AVX2_LOOPS)
#include <cpuid.h>
#endif

namespace muster::worker::baseline {
namespace {

struct Fp16 {
  static void widen(float* out, const uint16_t* in, size_t count) {
    for (size_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(float16::from_bits(in[i]));
  }
  static void narrow(uint16_t* out, const float* in, size_t count) {
    for (size_t i = 0; i < count; ++i)
      out[i] = float16(in[i]).bits();
  }
};

}  // namespace
}  // namespace muster::worker::baseline

#define MUSTER_LOOPS baseline
#define MUSTER_TARGET
#include "worker_lib/reduction/reduce_loops.h"

namespace muster::worker {
#if defined(MUSTER_HAVE_AVX2_LOOPS)
namespace {

// The bits of XCR0 for the state of AVX, set if the kernel saves both halves of its registers.
constexpr unsigned kAvxState = 0b110;

// Asks the processor, since __builtin_cpu_supports() needs a table that some compilers lack.
bool find_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_F16C))
    return false;
  unsigned kept = 0, high = 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  return (kept & kAvxState) == kAvxState && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
         (b & bit_AVX2) != 0;
}

}  // namespace
#endif

bool has_avx2() {
#if defined(MUSTER_HAVE_AVX2_LOOPS)
  static const bool has = find_avx2();
  return has;
#else
  return false;
#endif
}

void reduce_buffers(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                    size_t inputs, size_t count) {
  const ReduceLoop loop = (has_avx2() ? avx2::find_loop : baseline::find_loop)(dtype, op);
  CHECK(inputs >= 1 && loop != nullptr);
  loop(out, in, inputs, count);
}

void divide(DType dtype, std::byte* data, size_t count, double by) {
  CHECK(by > 0);
  (has_avx2() ? avx2::find_division : baseline::find_division)(dtype)(data, count, by);
}

bool is_reducible(DType dtype, ReduceOp op) {
  return baseline::find_loop(dtype, op) != nullptr;
}

}  // namespace muster::worker
