// One operation of a group as the backends see it: checked, with ranks of the group as plain
// numbers and all counts in elements.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "muster/types.h"
#include "rendezvous/base/time.h"
#include "rendezvous/ring/call_kinds.h"
#include "worker_lib/failure.h"
#include "worker_lib/purpose.h"

namespace muster::worker {

using OpKind = ring::CallKind;

// A collective operation. Sizes of its buffers, in elements, for n ranks:
//
//   kind            in                   out                  counts by rank        equal counts
//   barrier         -                    -                    -
//   broadcast       count at root        count elsewhere      -                     (in == out)
//   reduce          count                count at root        -
//   all_reduce      count                count                -
//   gather          counts[me]           sum(counts) at root  recv_counts, at root  out: n * count
//   all_gather      counts[me]           sum(counts)          recv_counts           out: n * count
//   scatter         sum(counts) at root  counts[me]           send_counts, at root  in: n * count
//   reduce_scatter  sum(counts)          counts[me]           send_counts           in: n * count
//   all_to_all      sum(send_counts)     sum(recv_counts)     both                  both: n * count
//
// With equal counts (in all_gather_v and reduce_scatter_v also if the given ones are equal) the
// vectors are empty, and `count` is the size of one block and of the other buffer. In a gather_v on
// other ranks than the root recv_counts is empty and `count` is what this rank sends (likewise
// scatter_v); is_v means that counts may differ between ranks. Other pointers are ignored.
// in == out, or one being this rank's block of the other, is in place.
struct Operation {
  OpKind kind = OpKind::barrier;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t count = 0;
  DType dtype = DType::uint8;
  ReduceOp reduce = ReduceOp::sum;
  int root = 0;
  bool is_v = false;
  std::vector<size_t> send_counts = {};
  std::vector<size_t> recv_counts = {};
  Device device = {};
  void* stream = nullptr;
  // GPU memory only: the call's stream waits for the result at once, so that stream may perform it.
  bool stream_waits = false;
  uint64_t sequence = 0;  // Number among the group's collectives, from 1: equal on all members.
  CallPurpose purpose = CallPurpose::itself;
  // True if the call had counts by rank, which were all equal. Used in messages.
  bool had_counts = false;
  std::chrono::milliseconds limit{0};  // The call's time-out, for messages; 0: unknown.
  const void* site = nullptr;          // Place of the call in the program, for records.
};

// Returns why a wait has to end; nullopt: it goes on.
using Interrupted = std::function<std::optional<Failure>()>;
// For waits that ask it now and then.
inline constexpr Duration kInterruptSlice = std::chrono::milliseconds(20);

struct Transfer {
  OpKind kind = OpKind::send;
  std::byte* data = nullptr;
  size_t count = 0;
  DType dtype = DType::uint8;
  int peer = 0;  // Group rank; -1: a receive from any.
  int tag = 0;
  Device device = {};
  void* stream = nullptr;
  std::chrono::milliseconds limit{0};  // The call's time-out, for messages; 0: unknown.
};

}  // namespace muster::worker
