#include "worker_lib/reduction/reduce_kernels.h"

#include "rendezvous/base/error.h"
#include "worker_lib/reduction/reduce_variants.h"

#if defined(MUSTER_HAVE_X86_LOOPS)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace muster::worker::baseline {
namespace {

#if defined(__aarch64__)
constexpr size_t kLanes = 4;

void widen_lanes(float* out, const uint16_t* in) {
  vst1q_f32(out, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in))));
}
void narrow_lanes(uint16_t* out, const float* in) {
  vst1_u16(out, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in))));
}
#else
constexpr size_t kLanes = 1;

void widen_lanes(float* out, const uint16_t* in) {
  *out = static_cast<float>(float16::from_bits(*in));
}
void narrow_lanes(uint16_t* out, const float* in) {
  *out = float16(*in).bits();
}
#endif

}  // namespace
}  // namespace muster::worker::baseline

#define MUSTER_LOOPS baseline
#define MUSTER_TARGET
#include "worker_lib/reduction/reduce_loops.h"

namespace muster::worker {

// Asks the processor, since __builtin_cpu_supports() needs a table that some compilers lack.
InstructionSets find_instruction_sets() {
  InstructionSets found;
#if defined(MUSTER_HAVE_X86_LOOPS)
  // Bits of XCR0: the parts of the registers that the kernel saves.
  constexpr unsigned kAvxState = 0b110;
  constexpr unsigned kAvx512State = 0b1110'0000 | kAvxState;
  constexpr unsigned kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_F16C))
    return found;
  unsigned kept = 0, high = 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  found.avx2 = (kept & kAvxState) == kAvxState && (b & bit_AVX2) != 0;
  found.avx512 = found.avx2 && (kept & kAvx512State) == kAvx512State && (b & kAvx512) == kAvx512;
#endif
  return found;
}

namespace {

// Returns the fastest loops for this dtype on this processor.
const Loops* best_loops(DType dtype) {
#if defined(MUSTER_HAVE_X86_LOOPS)
  static const InstructionSets has = find_instruction_sets();
  if (has.avx512) {
    if (const Loops* loops = avx512::loops_of(dtype)) return loops;
  }
  if (has.avx2) return avx2::loops_of(dtype);
#endif
  return baseline::loops_of(dtype);
}

}  // namespace

void reduce_buffers(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                    size_t inputs, size_t count) {
  CHECK(inputs >= 1 && is_reducible(dtype, op));
  best_loops(dtype)->reduce[static_cast<size_t>(op)](out, in, inputs, count);
}

void divide(DType dtype, std::byte* data, size_t count, double by) {
  CHECK(by > 0);
  best_loops(dtype)->divide(data, count, by);
}

bool is_reducible(DType dtype, ReduceOp op) {
  const Loops* const loops = baseline::loops_of(dtype);
  return loops != nullptr && loops->reduce[static_cast<size_t>(op)] != nullptr;
}

}  // namespace muster::worker
