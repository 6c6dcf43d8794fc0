// An average that a backend forms from partial results, in the type of its elements, such that none
// of these overflows. Inputs of the half types are divided by a power of two before: exact, but for
// float16 below 6e-5 times that power. Integers up to int32 are summed up in a wider type. Other
// types, and other operations, stay as they are.
#pragma once

#include <cstddef>
#include <memory>

#include "worker_lib/operation.h"

namespace muster::worker {

class SteppedAverage {
 public:
  // `operation` and its buffers outlive it. `me`: this rank among the `ranks`.
  SteppedAverage(const Operation& operation, int ranks, int me);

  // Returns the operation to perform: a sum to be divided by ranks / early_divisor().
  const Operation& step() const { return step_; }
  // Writes the result, once step() has been performed.
  void finish() const;

  // Returns by what inputs have been divided: the least power of two from `ranks` on, or 1.
  static double early_divisor(DType dtype, int ranks);

 private:
  const Operation& asked_;
  Operation step_;
  std::unique_ptr<std::byte[]> memory_;
  size_t results_ = 0;  // Elements to narrow.
};

}  // namespace muster::worker
