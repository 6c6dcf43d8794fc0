// The kinds of calls, and what each is: one table, from which names, checks, comparisons, NCCL's
// names, the Python recorder's numbers and the hang detector's rules follow. Pure.
//
// A row: the kind; the name that NCCL gives its function, if it has one; what a rank gives and gets
// (one block of `count` elements, or a block for each rank); what a root does; what the calls of
// all members have in common besides their kind and root (see call_rules.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::ring {

// clang-format off
#define MUSTER_CALL_KINDS(row)                                                       \
  row(unknown,           "",              none,   none,   none,  kind)               \
  row(barrier,           "",              none,   none,   none,  kind)               \
  row(broadcast,         "Broadcast",     block,  block,  gives, bytes)              \
  row(reduce,            "Reduce",        block,  block,  takes, reduction)          \
  row(all_reduce,        "AllReduce",     block,  block,  none,  reduction)          \
  row(gather,            "Gather",        block,  blocks, takes, kind)               \
  row(all_gather,        "AllGather",     block,  blocks, none,  bytes)              \
  row(scatter,           "Scatter",       blocks, block,  gives, kind)               \
  row(reduce_scatter,    "ReduceScatter", blocks, block,  none,  reduction)          \
  row(all_to_all,        "AlltoAll",      blocks, blocks, none,  bytes)              \
  row(send,              "Send",          block,  none,   none,  kind)               \
  row(recv,              "Recv",          none,   block,  none,  kind)               \
  row(monitored_barrier, "",              none,   none,   none,  kind)               \
  row(allocate_shared,   "",              none,   none,   none,  kind)
// clang-format on

// The numbers are part of the ring's layout, and go over the wire between ranks.
enum class CallKind : uint8_t {
#define MUSTER_ENUMERATOR(kind, nccl, in, out, root, common) kind,
  MUSTER_CALL_KINDS(MUSTER_ENUMERATOR)
#undef MUSTER_ENUMERATOR
};

enum class Extent : uint8_t { none, block, blocks };
enum class RootRole : uint8_t { none, gives, takes };
// `reduction`: also count and element type. `bytes`: count x size of the element.
enum class InCommon : uint8_t { kind, bytes, reduction };

struct CallRow {
  CallKind kind;
  const char* name;            // "all_reduce"
  std::string_view nccl_name;  // "AllReduce"; empty: NCCL has no such function.
  Extent in;
  Extent out;
  RootRole root;
  InCommon common;
};

// In the order of CallKind.
inline constexpr auto kCallRows = std::to_array<CallRow>({
#define MUSTER_ROW(kind, nccl, in, out, root, common) \
  {CallKind::kind, #kind, nccl, Extent::in, Extent::out, RootRole::root, InCommon::common},
    MUSTER_CALL_KINDS(MUSTER_ROW)
#undef MUSTER_ROW
});
#undef MUSTER_CALL_KINDS

// The row of `unknown` for numbers that are no kind: they come from memory that other processes
// write, or from the network.
constexpr const CallRow& row_of(CallKind kind) {
  const auto i = static_cast<size_t>(kind);
  return kCallRows[i < kCallRows.size() ? i : 0];
}

inline constexpr CallKind kLastCallKind = kCallRows.back().kind;

constexpr const char* name_of(CallKind kind) {
  return row_of(kind).name;
}
constexpr bool is_message(CallKind kind) {
  return kind == CallKind::send || kind == CallKind::recv;
}
constexpr bool has_root(CallKind kind) {
  return row_of(kind).root != RootRole::none;
}
constexpr bool has_reduction(CallKind kind) {
  return row_of(kind).common == InCommon::reduction;
}

// True if backends perform it, as an Operation.
constexpr bool is_collective(CallKind kind) {
  return kind == CallKind::barrier || (row_of(kind).in != Extent::none && !is_message(kind));
}

inline constexpr auto kCollectives = [] {
  constexpr auto kIsCollective = [](const CallRow& row) { return is_collective(row.kind); };
  std::array<CallKind, std::ranges::count_if(kCallRows, kIsCollective)> kinds{};
  size_t i = 0;
  for (const CallRow& row : kCallRows) {
    if (kIsCollective(row)) kinds[i++] = row.kind;
  }
  return kinds;
}();

}  // namespace muster::ring
