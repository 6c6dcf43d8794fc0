// Averages a list of buffers across ranks while the backward pass still computes the others.
//
//   // In the order of the forward pass.
//   muster::GradientBuckets buckets(muster::world(),
//                                   {layer1.dw, layer1.db, layer2.dw, layer2.db});
//   for (int step = 0; step < steps; ++step) {
//     backward(layer2);
//     buckets.ready(3);  // The all_reduce starts as soon as a bucket is full.
//     buckets.ready(2);
//     backward(layer1);
//     buckets.ready(1);
//     buckets.ready(0);
//     buckets.wait();    // The gradients now hold the averages, on all ranks.
//     update(layer1, layer2);
//   }
//
// The method is that of PyTorch's DistributedDataParallel (Li et al., "PyTorch Distributed:
// Experiences on Accelerating Data Parallel Training", VLDB 2020). The buffers are grouped into
// buckets in reverse order, since the backward pass finishes the last layer first. A bucket is
// reduced in one operation once all of its buffers are ready and all earlier buckets have started,
// so that every rank performs the same operations in the same order. Small buckets start early,
// large ones use the links better; the first is small so that an operation is soon in flight.
//
// One thread at a time may use an object. Between the first ready() of a step and the end of wait()
// nothing else may use its group, since operations would interleave differently on each rank: if
// that is needed, give it its own group (new_group).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

enum class BucketStrategy : uint8_t {
  all_reduce = 0,        // One all_reduce for each bucket.
  reduce_broadcast = 1,  // A reduce to rank 0 of the group and a broadcast from it: the same result
                         // as with a parameter server, for comparison.
};

struct BucketOptions {
  // A bucket is closed when the next buffer would make it larger than this. The defaults are those
  // of DistributedDataParallel.
  size_t bucket_bytes = size_t{25} << 20;
  size_t first_bucket_bytes = size_t{1} << 20;
  BucketStrategy strategy = BucketStrategy::all_reduce;
  ReduceOp op = ReduceOp::average;
  // Used for each operation. On GPUs, call ready() only after the gradient's kernels have been
  // launched on this stream; wait() makes this stream wait.
  CallOptions call = {};
};

class GradientBuckets {
 public:
  // Collective: all members construct it with the same list of counts, dtypes and options. If they
  // differ, all throw ErrorCode::mismatch and the group stays usable; a group with the backend nccl
  // cannot compare them. The buffers must stay in place for the lifetime of this object. All
  // buffers of one bucket have the same dtype and device.
  //
  // Buffers of a bucket that are contiguous in memory (parameters laid out in order in one vector)
  // are reduced in place. Others are copied to and from memory of this object, which the ranks of a
  // node share, so memory grows by at most their size. On GPUs nothing is copied: each contiguous
  // run is its own operation.
  //
  // The destructor waits for operations in flight, successful or not (each has its deadline); if an
  // exception destroys the object, as ~Work() does.
  MUSTER_CALL GradientBuckets(ProcessGroup group, span<const Buffer> buffers,
                              const BucketOptions& options = {})
      : GradientBuckets(group, buffers, options, MUSTER_CALLER) {}
  MUSTER_CALL GradientBuckets(ProcessGroup group, std::initializer_list<Buffer> buffers,
                              const BucketOptions& options = {})
      : GradientBuckets(group, span<const Buffer>(buffers.begin(), buffers.size()), options,
                        MUSTER_CALLER) {}

  // Marks buffer `index` as holding this step's gradient; do not touch it until wait(). May start
  // operations; never blocks for other ranks. Any order is correct; the reverse of the list's is
  // fastest. Throws invalid_argument for an index that does not exist or was already ready in this
  // step, and the errors of the group's operations.
  MUSTER_CALL void ready(size_t index) {
    detail::throw_unless_ok(muster_buckets_ready(handle_.get(), index, MUSTER_CALLER));
  }
  // Marks all remaining buffers ready, if no overlap is wanted.
  MUSTER_CALL void ready_all() {
    detail::throw_unless_ok(muster_buckets_ready_all(handle_.get(), MUSTER_CALLER));
  }

  // Starts what is left. A buffer that was not ready() in this step (a layer that took no part)
  // counts as zeros on this rank, whatever it holds, and gets the average like any other buffer. On
  // GPUs it is not zeroed: its old contents are averaged.
  MUSTER_CALL void flush() {
    detail::throw_unless_ok(muster_buckets_flush(handle_.get(), MUSTER_CALLER));
  }

  // Calls flush(), then blocks until every buffer holds its result on this rank; the next step may
  // then begin. Throws an operation's failure; the buffers are then undefined. On the cpu backend
  // the results are bitwise equal on all ranks.
  MUSTER_CALL void wait() {
    detail::throw_unless_ok(muster_buckets_wait(handle_.get(), MUSTER_CALLER));
  }

  size_t bucket_count() const noexcept { return muster_buckets_count(handle_.get()); }
  size_t bucket_of(size_t index) const {  // Throws invalid_argument.
    return static_cast<size_t>(detail::not_negative(muster_buckets_of(handle_.get(), index)));
  }
  // Time that wait() blocked for operations in the last step, and time that ready() and wait()
  // spent copying: the cost of the exchange beyond what was overlapped.
  std::chrono::nanoseconds last_wait() const noexcept { return times().first; }
  std::chrono::nanoseconds last_copy() const noexcept { return times().second; }

 private:
  class Free {
   public:
    Free() : exceptions_before_(std::uncaught_exceptions()) {}
    void operator()(muster_buckets* buckets) const {
      muster_buckets_free(buckets, std::uncaught_exceptions() > exceptions_before_ ? 1 : 0);
    }

   private:
    int exceptions_before_;
  };

  GradientBuckets(const ProcessGroup& group, span<const Buffer> buffers,
                  const BucketOptions& options, const void* site) {
    if (!group.valid())
      detail::throw_empty("GradientBuckets", "ProcessGroup", "world(), new_group() or split()");
    std::vector<muster_buffer> list;
    for (const Buffer& buffer : buffers)
      list.push_back(detail::c_buffer(buffer.data, buffer.count, buffer.dtype, buffer.device));
    muster_bucket_options given MUSTER_BUCKET_OPTIONS;
    given.bucket_bytes = options.bucket_bytes;
    given.first_bucket_bytes = options.first_bucket_bytes;
    given.strategy = static_cast<int>(options.strategy);
    given.op = static_cast<int>(options.op);
    const muster_call_options call = detail::c_options(options.call, site);
    muster_buckets* made = nullptr;
    detail::throw_unless_ok(
        muster_buckets_new(group.handle(), list.data(), list.size(), &given, &call, &made));
    handle_.reset(made);
  }

  std::pair<std::chrono::nanoseconds, std::chrono::nanoseconds> times() const noexcept {
    int64_t wait = 0;
    int64_t copy = 0;
    muster_buckets_times(handle_.get(), &wait, &copy);
    return {std::chrono::nanoseconds(wait), std::chrono::nanoseconds(copy)};
  }

  std::unique_ptr<muster_buckets, Free> handle_;
};

}  // namespace muster
