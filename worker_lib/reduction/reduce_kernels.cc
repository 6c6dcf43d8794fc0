#include "worker_lib/reduction/reduce_kernels.h"

#include "rendezvous/base/error.h"
#include "worker_lib/reduction/reduce_variants.h"

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

bool has_avx2() {
#if defined(MUSTER_HAVE_AVX2_LOOPS)
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
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
