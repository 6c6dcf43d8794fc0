// The loops of reduce_kernels.h by instruction set, as reduce_loops.h makes them: the baseline, and
// AVX2 with F16C (eight floats at a time). REQUIRES for AVX2: the processor has both.
#pragma once

#include <cstddef>

#include "muster/types.h"

#if defined(__x86_64__)
#define MUSTER_HAVE_AVX2_LOOPS 1
#endif

namespace muster::worker {

bool has_avx2();

void reduce_buffers_baseline(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                             size_t inputs, size_t count);
void divide_baseline(DType dtype, std::byte* data, size_t count, int by);

void reduce_buffers_avx2(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                         size_t inputs, size_t count);
void divide_avx2(DType dtype, std::byte* data, size_t count, int by);

}  // namespace muster::worker
