#include "worker_lib/recorder/ring_calls.h"

#include <array>
#include <cstdint>
#include <numeric>

namespace muster::worker {

namespace {

constexpr ring::CallKind kind_of(OpKind kind) {
  return static_cast<ring::CallKind>(static_cast<uint8_t>(kind) + 1);
}
static_assert(kind_of(OpKind::barrier) == ring::CallKind::barrier);
static_assert(kind_of(OpKind::broadcast) == ring::CallKind::broadcast);
static_assert(kind_of(OpKind::reduce) == ring::CallKind::reduce);
static_assert(kind_of(OpKind::all_reduce) == ring::CallKind::all_reduce);
static_assert(kind_of(OpKind::gather) == ring::CallKind::gather);
static_assert(kind_of(OpKind::all_gather) == ring::CallKind::all_gather);
static_assert(kind_of(OpKind::scatter) == ring::CallKind::scatter);
static_assert(kind_of(OpKind::reduce_scatter) == ring::CallKind::reduce_scatter);
static_assert(kind_of(OpKind::all_to_all) == ring::CallKind::all_to_all);
static_assert(kind_of(OpKind::send) == ring::CallKind::send);
static_assert(kind_of(OpKind::recv) == ring::CallKind::recv);

constexpr ring::Reduction recorded_reduction(ReduceOp op) {
  return static_cast<ring::Reduction>(static_cast<uint8_t>(op) + 1);
}
static_assert(recorded_reduction(ReduceOp::sum) == ring::Reduction::sum);
static_assert(recorded_reduction(ReduceOp::average) == ring::Reduction::average);
static_assert(recorded_reduction(ReduceOp::product) == ring::Reduction::product);
static_assert(recorded_reduction(ReduceOp::min) == ring::Reduction::min);
static_assert(recorded_reduction(ReduceOp::max) == ring::Reduction::max);
static_assert(recorded_reduction(ReduceOp::band) == ring::Reduction::band);
static_assert(recorded_reduction(ReduceOp::bor) == ring::Reduction::bor);
static_assert(recorded_reduction(ReduceOp::bxor) == ring::Reduction::bxor);

constexpr std::array kTypes{
    ring::ElementType::int8,     ring::ElementType::uint8,   ring::ElementType::int16,
    ring::ElementType::int32,    ring::ElementType::int64,   ring::ElementType::float16,
    ring::ElementType::bfloat16, ring::ElementType::float32, ring::ElementType::float64};

constexpr ring::ElementType type_of(DType dtype) {
  return kTypes[static_cast<size_t>(dtype)];
}
static_assert(type_of(DType::int8) == ring::ElementType::int8);
static_assert(type_of(DType::uint8) == ring::ElementType::uint8);
static_assert(type_of(DType::int16) == ring::ElementType::int16);
static_assert(type_of(DType::int32) == ring::ElementType::int32);
static_assert(type_of(DType::int64) == ring::ElementType::int64);
static_assert(type_of(DType::float16) == ring::ElementType::float16);
static_assert(type_of(DType::bfloat16) == ring::ElementType::bfloat16);
static_assert(type_of(DType::float32) == ring::ElementType::float32);
static_assert(type_of(DType::float64) == ring::ElementType::float64);

}  // namespace

ring::Call ring_call_of(const Operation& operation, bool is_awaited) {
  ring::Call call{.kind = kind_of(operation.kind), .is_synchronous = is_awaited};
  if (operation.kind == OpKind::barrier) return call;
  call.type = type_of(operation.dtype);
  call.count = operation.count;
  call.is_v = operation.is_v;
  if (has_reduction(operation.kind)) call.reduction = recorded_reduction(operation.reduce);
  if (has_root(operation.kind)) call.root = operation.root;
  // Of an all_to_all_v, `count` says nothing.
  if (operation.is_v && operation.kind == OpKind::all_to_all)
    call.count =
        std::accumulate(operation.send_counts.begin(), operation.send_counts.end(), uint64_t{0});
  return call;
}

ring::Call ring_call_of(const Transfer& transfer, bool is_awaited) {
  return {.kind = kind_of(transfer.kind),
          .type = type_of(transfer.dtype),
          .is_synchronous = is_awaited,
          .root = transfer.peer,
          .count = transfer.count};
}

ring::Call shared_memory_call(size_t bytes) {
  return {.kind = ring::CallKind::allocate_shared,
          .type = ring::ElementType::uint8,
          .is_synchronous = true,
          .count = bytes};
}

}  // namespace muster::worker
