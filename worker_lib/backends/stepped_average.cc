#include "worker_lib/backends/stepped_average.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "worker_lib/copy_bytes.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

bool is_half(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16;
}

// Calls `act` with a value of the C++ type of `dtype`, and one of a type that holds its sums.
template <typename Act>
void with_small_integer(DType dtype, const Act& act) {
  switch (dtype) {
    case DType::int8:
      return act(int8_t{}, int32_t{});
    case DType::uint8:
      return act(uint8_t{}, int32_t{});
    case DType::int16:
      return act(int16_t{}, int32_t{});
    default:
      return act(int32_t{}, int64_t{});
  }
}

}  // namespace

double SteppedAverage::early_divisor(DType dtype, int ranks) {
  return is_half(dtype) ? std::bit_ceil(static_cast<unsigned>(ranks)) : 1;
}

SteppedAverage::SteppedAverage(const Operation& operation, int ranks, int me)
    : asked_(operation), step_(operation) {
  const DType dtype = operation.dtype;
  const bool widens = dtype < DType::int64;
  if (!has_reduction(operation.kind) || operation.reduce != ReduceOp::average) return;
  if (!widens && !is_half(dtype)) return;
  const auto& blocks = operation.send_counts;
  const bool scatters = operation.kind == OpKind::reduce_scatter;
  const size_t inputs = !scatters        ? operation.count
                        : blocks.empty() ? operation.count * static_cast<size_t>(ranks)
                                         : std::reduce(blocks.begin(), blocks.end());
  if (widens) {
    const bool receives = operation.kind != OpKind::reduce || operation.root == me;
    if (receives) results_ = blocks.empty() ? operation.count : blocks[static_cast<size_t>(me)];
    with_small_integer(dtype, [&]<typename T, typename Sum>(T, Sum) {
      memory_.reset(new std::byte[(inputs + results_) * sizeof(Sum)]);
      auto* sums = reinterpret_cast<Sum*>(memory_.get());
      std::copy_n(reinterpret_cast<const T*>(operation.in), inputs, sums);
      step_.dtype = dtype_of<Sum>;
      step_.in = memory_.get();
      step_.out = reinterpret_cast<std::byte*>(sums + inputs);
    });
    return;
  }
  const size_t bytes = inputs * size_of(dtype);
  if (operation.kind != OpKind::all_reduce) memory_.reset(new std::byte[bytes]);
  std::byte* scaled = memory_ ? memory_.get() : operation.out;
  if (bytes > 0 && scaled != operation.in) copy_bytes(scaled, operation.in, bytes);
  divide(dtype, scaled, inputs, early_divisor(dtype, ranks));
  step_.in = scaled;
}

void SteppedAverage::finish() const {
  if (results_ == 0) return;
  with_small_integer(asked_.dtype, [&]<typename T, typename Sum>(T, Sum) {
    const auto* results = reinterpret_cast<const Sum*>(step_.out);
    for (size_t i = 0; i < results_; ++i)
      reinterpret_cast<T*>(asked_.out)[i] = static_cast<T>(results[i]);
  });
}

}  // namespace muster::worker
