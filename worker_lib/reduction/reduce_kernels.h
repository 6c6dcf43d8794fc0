// Element-wise reductions of buffers in host memory: every dtype with every ReduceOp.
//
// Inputs are combined in order, ((a0 op a1) op a2) ..., element by element, so results do not
// depend on how a buffer was cut into pieces or on which rank reduces which piece. float16 and
// bfloat16 are widened, combined in float and rounded after every step. min and max give NaN if any
// input is NaN (as torch.minimum does). Integer sums and products wrap around. Averages of the half
// types and of integers up to int32 are formed in a wider type and rounded once: no sum overflows.
//
// Pure functions; any thread. All instruction sets give the same results bit by bit.
#pragma once

#include <cstddef>

#include "muster/types.h"

namespace muster::worker {

// Computes out[i] = in[0][i] op in[1][i] op ... for `count` elements. `out` may be one of the
// inputs, exactly; no other overlap.
// REQUIRES: inputs >= 1; all pointers aligned for the dtype; is_reducible().
void reduce_buffers(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                    size_t inputs, size_t count);

// Computes data[i] /= by: integers by a whole number, towards zero; floats rounded to nearest.
// REQUIRES: by > 0.
void divide(DType dtype, std::byte* data, size_t count, double by);

// Returns true if `op` is defined for `dtype`: band, bor and bxor only for integers.
bool is_reducible(DType dtype, ReduceOp op);

}  // namespace muster::worker
