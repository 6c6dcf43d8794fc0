// Element-wise reductions of buffers in host memory: every dtype with every ReduceOp.
//
// The order is that of the inputs: ((a0 op a1) op a2) ..., for each element alone, so results do
// not depend on how a buffer was cut into pieces nor on who reduces which piece. float16 and
// bfloat16 are widened, combined in float and rounded after every step. min and max give NaN where
// any input is NaN (as torch.minimum does). Integer sums and products wrap around.
//
// Pure functions; any thread. They choose AVX2 at run time where the processor has it: results are
// the same bit by bit.
#pragma once

#include <cstddef>

#include "muster/types.h"

namespace muster::worker {

// out[i] = in[0][i] op in[1][i] op ... for `count` elements. `average` is taken as sum: divide()
// comes at the end. `out` may be one of the inputs, exactly; no other overlap. REQUIRES: inputs >=
// 1; everything aligned for the dtype; band, bor, bxor of integers only.
void reduce_buffers(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                    size_t inputs, size_t count);

// data[i] /= by: integers towards zero, floats rounded to nearest. REQUIRES: by >= 1.
void divide(DType dtype, std::byte* data, size_t count, int by);

// reduce_buffers(), and divide() for `average`.
void reduce_and_divide(DType dtype, ReduceOp op, std::byte* out, const std::byte* const* in,
                       size_t inputs, size_t count);

// Whether `op` can be had for `dtype`.
bool is_reducible(DType dtype, ReduceOp op);

}  // namespace muster::worker
