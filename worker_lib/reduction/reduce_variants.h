// The loops of reduce_kernels.h by instruction set, made by reduce_loops.h: the baseline, which is
// NEON on aarch64, and for x86-64 AVX2 with F16C (eight floats at a time) and AVX-512 (sixteen).
// AVX-512 has bfloat16 alone, which takes 0.75 to 0.9 of AVX2's time on Zen 4 (2 and 4 inputs of
// 4 KiB to 128 MiB). The sums of other types take as long, or up to 1.1 times at 4 KiB; float16
// takes 0.7 times in the caches, but up to 1.7 times outside.
#pragma once

#include <array>
#include <cstddef>

#include "muster/types.h"

#if defined(__x86_64__)
#define MUSTER_HAVE_X86_LOOPS 1
#endif

namespace muster::worker {

// See reduce_buffers() and divide().
using ReduceLoop = void (*)(std::byte* out, const std::byte* const* in, size_t inputs,
                            size_t count);
using DivideLoop = void (*)(std::byte* data, size_t count, double by);

// One dtype's. Null: not defined for the dtype.
struct Loops {
  std::array<ReduceLoop, 8> reduce{};  // Indexed by ReduceOp.
  DivideLoop divide = nullptr;
};

// What the processor and the kernel support.
struct InstructionSets {
  bool avx2 = false;    // And F16C.
  bool avx512 = false;  // F, BW, DQ and VL.
};
InstructionSets find_instruction_sets();

}  // namespace muster::worker

// Each returns null for a dtype that does not exist or has no loops in this instruction set.
namespace muster::worker::baseline {
const Loops* loops_of(DType dtype);
}  // namespace muster::worker::baseline
#if defined(MUSTER_HAVE_X86_LOOPS)
namespace muster::worker::avx2 {
const Loops* loops_of(DType dtype);
}  // namespace muster::worker::avx2
namespace muster::worker::avx512 {
const Loops* loops_of(DType dtype);
}  // namespace muster::worker::avx512
#endif
