#include "worker_lib/recorder/ring_calls.h"

#include <array>
#include <cstdint>
#include <numeric>

namespace muster::worker {
namespace {

// Both enums have the same order, which a test checks by the names.
constexpr ring::Reduction recorded_reduction(ReduceOp op) {
  return static_cast<ring::Reduction>(static_cast<uint8_t>(op) + 1);
}

constexpr std::array kTypes{
    ring::ElementType::int8,     ring::ElementType::uint8,   ring::ElementType::int16,
    ring::ElementType::int32,    ring::ElementType::int64,   ring::ElementType::float16,
    ring::ElementType::bfloat16, ring::ElementType::float32, ring::ElementType::float64};

constexpr ring::ElementType type_of(DType dtype) {
  return kTypes[static_cast<size_t>(dtype)];
}

}  // namespace

ring::Call ring_call_of(const Operation& operation, bool is_awaited) {
  ring::Call call{.kind = operation.kind, .is_synchronous = is_awaited};
  if (operation.kind == OpKind::barrier) return call;
  call.type = type_of(operation.dtype);
  call.count = operation.count;
  call.is_v = operation.is_v;
  if (has_reduction(operation.kind)) call.reduction = recorded_reduction(operation.reduce);
  if (has_root(operation.kind)) call.root = operation.root;
  // all_to_all_v has no `count`.
  if (operation.is_v && operation.kind == OpKind::all_to_all)
    call.count =
        std::accumulate(operation.send_counts.begin(), operation.send_counts.end(), uint64_t{0});
  return call;
}

ring::Call ring_call_of(const Transfer& transfer, bool is_awaited) {
  return {.kind = transfer.kind,
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
