// Averages a list of buffers between the ranks while the backward pass still computes the others.
//
//   // In the order of the forward pass.
//   muster::GradientBuckets buckets(muster::world(),
//                                   {layer1.dw, layer1.db, layer2.dw, layer2.db});
//   for (int step = 0; step < steps; ++step) {
//     backward(layer2);
//     buckets.ready(3);  // The all_reduce begins as soon as a bucket is full.
//     buckets.ready(2);
//     backward(layer1);
//     buckets.ready(1);
//     buckets.ready(0);
//     buckets.wait();    // The gradients now hold the averages, on all ranks.
//     update(layer1, layer2);
//   }
//
// The method is that of PyTorch's DistributedDataParallel (Li et al., "PyTorch Distributed:
// Experiences on Accelerating Data Parallel Training", VLDB 2020): the buffers are grouped into
// buckets in reverse order, since the backward pass finishes the last layer first; a bucket is
// reduced in one operation when all of its buffers are ready and all buckets before it have begun,
// so that every rank performs the same operations in the same order. Small buckets begin early,
// large ones use the links better; the first is small so that something is under way soon.
//
// One object is used by one thread at a time, and nothing else is done with its group between the
// first ready() of a step and the end of wait(): the operations would mix differently on each rank.
// Give it a group of its own (new_group) where that is wanted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

enum class BucketStrategy : uint8_t {
  all_reduce = 0,        // One all_reduce for each bucket.
  reduce_broadcast = 1,  // A reduce to rank 0 of the group and a broadcast from there: the same
                         // result by the road of a parameter server, to compare with.
};

struct BucketOptions {
  // A bucket is closed when the next buffer would make it larger than this.
  // DistributedDataParallel's defaults.
  size_t bucket_bytes = size_t{25} << 20;
  size_t first_bucket_bytes = size_t{1} << 20;
  BucketStrategy strategy = BucketStrategy::all_reduce;
  ReduceOp op = ReduceOp::average;
  // Of each operation: see CallOptions. On GPUs ready() must be called with the gradient's kernels
  // already put on this stream, and it is this stream that wait() makes wait.
  CallOptions call = {};
};

namespace worker {
class BucketState;
}

class MUSTER_API GradientBuckets {
 public:
  // Collective: all members make it with the same list of counts, dtypes and options; where they
  // differ, all throw ErrorCode::mismatch, and the group stays usable. The buffers must stay where
  // they are as long as this object lives. Buffers of one bucket have one dtype and device.
  //
  // Buffers of a bucket that lie one behind the other in memory (a layout of one vector for all
  // parameters, in their order) are reduced where they are. Others are copied into memory of this
  // object, which the ranks of a node share, and back: so memory grows by at most their size. On
  // GPUs nothing is copied: there each run of neighbours is an operation of its own.
  GradientBuckets(ProcessGroup group, std::span<const Buffer> buffers,
                  const BucketOptions& options = {});
  GradientBuckets(ProcessGroup group, std::initializer_list<Buffer> buffers,
                  const BucketOptions& options = {})
      : GradientBuckets(std::move(group), std::span<const Buffer>(buffers.begin(), buffers.size()),
                        options) {}
  GradientBuckets(GradientBuckets&&) noexcept;
  GradientBuckets& operator=(GradientBuckets&&) noexcept;
  // Waits for operations that are under way, whatever becomes of them (each has its deadline).
  ~GradientBuckets();

  // Buffer `index` holds this step's gradient and is not touched until wait(). May begin
  // operations; never blocks for other ranks. Any order is right; the reverse of the list's is
  // fastest. Throws invalid_argument for an index that is not there or was ready before in this
  // step, and what an operation of the group throws.
  void ready(size_t index);
  // Of all that are not ready yet: for who wants no overlap.
  void ready_all();

  // Begins what is left. A buffer that was not ready() in this step counts as zeros on this rank,
  // whatever it holds (on GPUs: as what it holds): a layer that took no part. It gets the others'
  // average as any.
  void flush();

  // flush(), and blocks until every buffer holds its result on this rank; then the next step may
  // begin. Throws what an operation failed with; the buffers are undefined then. The results are
  // bit-equal on all ranks on the cpu backend.
  void wait();

  // What was made of the list.
  size_t bucket_count() const noexcept;
  size_t bucket_of(size_t index) const;  // Throws invalid_argument.
  // How long wait() has blocked for operations in the last step, and how long ready() and wait()
  // took to copy: what the step pays for the exchange beyond what was overlapped.
  std::chrono::nanoseconds last_wait() const noexcept;
  std::chrono::nanoseconds last_copy() const noexcept;

 private:
  std::unique_ptr<worker::BucketState> state_;
};

}  // namespace muster
