// The loops of reduce_kernels.h by instruction set, made by reduce_loops.h: the baseline, and AVX2
// with F16C (eight floats at a time). The AVX2 loops REQUIRE a processor with both: has_avx2().
#pragma once

#include <cstddef>

#include "muster/types.h"

#if defined(__x86_64__)
#define MUSTER_HAVE_AVX2_LOOPS 1
#endif

namespace muster::worker {

bool has_avx2();

// See reduce_buffers() and divide().
using ReduceLoop = void (*)(std::byte* out, const std::byte* const* in, size_t inputs,
                            size_t count);
using DivideLoop = void (*)(std::byte* data, size_t count, double by);

}  // namespace muster::worker

// Both return null for a DType that does not exist; find_loop() also if the op is not defined.
namespace muster::worker::baseline {
ReduceLoop find_loop(DType dtype, ReduceOp op);
DivideLoop find_division(DType dtype);
}  // namespace muster::worker::baseline

#if defined(MUSTER_HAVE_AVX2_LOOPS)
namespace muster::worker::avx2 {
ReduceLoop find_loop(DType dtype, ReduceOp op);
DivideLoop find_division(DType dtype);
}  // namespace muster::worker::avx2
#else
namespace muster::worker {
namespace avx2 = baseline;
}
#endif
