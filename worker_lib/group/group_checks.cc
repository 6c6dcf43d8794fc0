#include "worker_lib/group/group_checks.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {

namespace {

using ring::Extent;
using ring::RootRole;

// One call on one rank, with the buffers that are used there.
struct CallView {
  const CollectiveCall& call;
  const GroupShape& shape;
  const ring::CallRow& row;
  bool uses_in;
  bool uses_out;

  CallView(const CollectiveCall& call_, const GroupShape& shape_)
      : call(call_), shape(shape_), row(row_of(call_.kind)) {
    const bool at_root = !has_root(call.kind) || shape.me == call.root;
    // A broadcast has one buffer, which is `in` and `out` on each rank.
    const bool only_root_gives = row.root == RootRole::gives && row.in != row.out;
    uses_in = row.in != Extent::none && (at_root || !only_root_gives);
    uses_out = row.out != Extent::none && (at_root || row.root != RootRole::takes);
  }
};

[[gnu::cold]] bool refuse_call(std::string& why, std::string text) {
  why = std::move(text);
  return false;
}

bool check_view(const char* role, const ConstBuffer& view, std::string& why) {
  const size_t size = size_of(view.dtype);
  if (size == 0) {
    return refuse_call(why, fmt::format("{} has the dtype {}, which does not exist", role,
                                        static_cast<int>(view.dtype)));
  }
  if (view.count == 0) return true;
  if (view.data == nullptr) {
    return refuse_call(
        why, fmt::format("{} has {} and a null pointer", role, counted(view.count, "element")));
  }
  if (view.count > static_cast<size_t>(PTRDIFF_MAX) / size) {
    return refuse_call(
        why, fmt::format("{} has {} elements, more than any memory can hold", role, view.count));
  }
  if (reinterpret_cast<uintptr_t>(view.data) % size != 0) {
    return refuse_call(
        why, fmt::format("{} is not aligned for {}: its address must be a multiple of {}", role,
                         name_of(view.dtype), size));
  }
  return true;
}

std::string place_name(const Device& device) {
  return device.kind == Device::Kind::cpu ? "the CPU" : fmt::format("cuda:{}", device.index);
}

// An empty view carries no dtype or place: Buffer{} means "none".
bool says_nothing(const ConstBuffer& view) {
  return view.count == 0 && view.data == nullptr;
}

bool check_alike(const ConstBuffer& in, const ConstBuffer& out, std::string& why) {
  if (says_nothing(in) || says_nothing(out)) return true;
  if (in.dtype != out.dtype) {
    return refuse_call(why, fmt::format("in is {} and out is {}; give both the same dtype",
                                        name_of(in.dtype), name_of(out.dtype)));
  }
  if (in.device != out.device) {
    return refuse_call(why, fmt::format("in is on {} and out is on {}; give both the same place",
                                        place_name(in.device), place_name(out.device)));
  }
  return true;
}

bool check_reduce(ReduceOp op, DType dtype, std::string& why) {
  if (static_cast<uint8_t>(op) > static_cast<uint8_t>(ReduceOp::bxor)) {
    return refuse_call(why, fmt::format("there is no reduction {}", static_cast<int>(op)));
  }
  if (is_reducible(dtype, op)) return true;
  return refuse_call(why,
                     fmt::format("{} is for integers, not for {}", name_of(op), name_of(dtype)));
}

// True if `total` elements are blocks of `count`, one per rank.
bool check_blocks(const char* whole, size_t total, const char* part, size_t count, size_t ranks,
                  std::string& why) {
  size_t wanted = 0;
  const bool overflows = __builtin_mul_overflow(count, ranks, &wanted);
  if (!overflows && wanted == total) return true;
  return refuse_call(why, fmt::format("{} has {} where {} x {} ({}){} are needed", whole,
                                      counted(total, "element"), counted(ranks, "rank"), count,
                                      part, overflows ? "" : fmt::format(" = {}", wanted)));
}

bool check_equal_counts(const CallView& view, Operation& operation, std::string& why) {
  const ConstBuffer& in = view.call.in;
  const ConstBuffer out = view.call.out;
  const auto ranks = static_cast<size_t>(view.shape.size);
  const bool both = view.uses_in && view.uses_out;
  operation.count = view.uses_in ? in.count : out.count;
  if (view.row.in == view.row.out) {
    if (both && in.count != out.count) {
      return refuse_call(
          why, fmt::format("out has {} where in has {}", counted(out.count, "element"), in.count));
    }
    if (view.row.in != Extent::blocks) return true;
    if (in.count % ranks != 0) {
      return refuse_call(
          why, fmt::format("{} elements are not {} equal blocks; all_to_all_v takes unequal ones",
                           in.count, ranks));
    }
    operation.count = in.count / ranks;
    return true;
  }
  if (view.row.in == Extent::block) {
    return !both || check_blocks("out", out.count, "in", in.count, ranks, why);
  }
  operation.count = out.count;
  return !both || check_blocks("in", in.count, "out", out.count, ranks, why);
}

bool check_counts(const char* role, std::span<const size_t> counts, const char* whole, size_t total,
                  const GroupShape& shape, std::string& why) {
  if (counts.size() != static_cast<size_t>(shape.size)) {
    return refuse_call(
        why, fmt::format("{} has {} where the group has {}", role, counted(counts.size(), "number"),
                         counted(shape.size, "rank")));
  }
  size_t sum = 0;
  for (const size_t count : counts) {
    if (__builtin_add_overflow(sum, count, &sum)) {
      return refuse_call(why, fmt::format("{} add up to more than any memory can hold", role));
    }
  }
  if (sum == total) return true;
  return refuse_call(why, fmt::format("{} has {} where {} add up to {}", whole,
                                      counted(total, "element"), role, sum));
}

bool check_own_count(std::span<const size_t> counts, const char* part, size_t count,
                     const GroupShape& shape, std::string& why) {
  const size_t own = counts[static_cast<size_t>(shape.me)];
  if (own == count) return true;
  return refuse_call(why, fmt::format("{} has {} where counts[{}], of this rank, is {}", part,
                                      counted(count, "element"), shape.me, own));
}

bool check_all_to_all_v(const CallView& view, Operation& operation, std::string& why) {
  const CollectiveCall& call = view.call;
  const GroupShape& shape = view.shape;
  if (!check_counts("send_counts", call.send_counts, "in", call.in.count, shape, why) ||
      !check_counts("recv_counts", call.recv_counts, "out", call.out.count, shape, why)) {
    return false;
  }
  const auto me = static_cast<size_t>(shape.me);
  if (call.send_counts[me] != call.recv_counts[me]) {
    return refuse_call(why,
                       fmt::format("this rank sends {} to itself and expects {}",
                                   counted(call.send_counts[me], "element"), call.recv_counts[me]));
  }
  operation.is_v = true;
  operation.send_counts.assign(call.send_counts.begin(), call.send_counts.end());
  operation.recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
  return true;
}

bool counts_are_equal(std::span<const size_t> counts) {
  return std::ranges::adjacent_find(counts, std::ranges::not_equal_to{}) == counts.end();
}

// Checks operations with counts on one side only. Without a root, all ranks must give the same
// counts, so if these are equal, all ranks take the shorter path without counts.
bool check_v(const CallView& view, Operation& operation, std::string& why) {
  const bool gathers = view.row.out == Extent::blocks;
  const ConstBuffer whole = gathers ? ConstBuffer(view.call.out) : view.call.in;
  const ConstBuffer part = gathers ? view.call.in : ConstBuffer(view.call.out);
  const std::span<const size_t> counts = gathers ? view.call.recv_counts : view.call.send_counts;
  operation.is_v = true;
  operation.count = part.count;
  if (!(gathers ? view.uses_out : view.uses_in)) return true;
  if (!check_counts("counts", counts, gathers ? "out" : "in", whole.count, view.shape, why) ||
      !check_own_count(counts, gathers ? "in" : "out", part.count, view.shape, why)) {
    return false;
  }
  if (!has_root(view.call.kind) && counts_are_equal(counts)) {
    operation.is_v = false;
    operation.had_counts = true;
    return true;
  }
  (gathers ? operation.recv_counts : operation.send_counts).assign(counts.begin(), counts.end());
  return true;
}

bool views_overlap(const ConstBuffer& a, const ConstBuffer& b) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<uintptr_t>(b.data);
  return a.count > 0 && b.count > 0 && a_begin < b_begin + b.bytes() &&
         b_begin < a_begin + a.bytes();
}

// Number of elements before this rank's block in the buffer of all blocks.
size_t own_offset(const CallView& view, const Operation& operation) {
  const auto me = static_cast<size_t>(view.shape.me);
  const std::vector<size_t>& counts =
      view.row.out == Extent::blocks ? operation.recv_counts : operation.send_counts;
  if (counts.empty()) return me * operation.count;
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(me), size_t{0});
}

bool check_overlap(const CallView& view, const Operation& operation, std::string& why) {
  const ConstBuffer& in = view.call.in;
  const ConstBuffer out = view.call.out;
  if (!view.uses_in || !view.uses_out || !views_overlap(in, out)) return true;
  if (view.row.in == Extent::blocks && view.row.out == Extent::blocks) {
    return refuse_call(why, "in and out overlap, and this operation cannot be done in place");
  }
  const bool alike = view.row.in == view.row.out;
  const bool out_is_whole = view.row.out == Extent::blocks;
  const auto* whole = static_cast<const std::byte*>(out_is_whole ? out.data : in.data);
  const void* part = out_is_whole ? in.data : out.data;
  const size_t offset = alike ? 0 : own_offset(view, operation) * size_of(in.dtype);
  if (whole + offset == part) return true;
  if (alike)
    return refuse_call(why,
                       "in and out overlap without being the same; give the same memory, or memory "
                       "that does not overlap");
  return refuse_call(why,
                     fmt::format("in and out overlap; for an operation in place the smaller buffer "
                                 "must begin at element {} of the larger",
                                 own_offset(view, operation)));
}

bool check_memory(const CallView& view, std::string& why) {
  if (view.uses_in && !check_view("in", view.call.in, why)) return false;
  if (!view.uses_out) return true;
  // Already checked as `in`: in place.
  if (view.uses_in && view.call.in.data == view.call.out.data &&
      view.call.in.count == view.call.out.count) {
    return check_alike(view.call.in, view.call.out, why);
  }
  return check_view("out", view.call.out, why) &&
         (!view.uses_in || check_alike(view.call.in, view.call.out, why));
}

// The view that has the dtype and the place: `in`, unless it is empty.
ConstBuffer telling_view(const CallView& view) {
  if (!view.uses_in || (view.uses_out && says_nothing(view.call.in))) return view.call.out;
  return view.call.in;
}

}  // namespace

std::string check_rank(const char* role, int rank, int size) {
  if (rank >= 0 && rank < size) return {};
  if (size == 1) return fmt::format("{} {} is not in the group, whose one rank is 0", role, rank);
  return fmt::format("{} {} is not in the group, whose ranks are 0 to {}", role, rank, size - 1);
}

bool check_collective(const CollectiveCall& call, const GroupShape& shape, Operation& operation,
                      std::string& why) {
  operation.kind = call.kind;
  if (call.kind == OpKind::barrier) return true;
  const CallView view(call, shape);
  if (has_root(view.call.kind)) why = check_rank("root", call.root, shape.size);
  if (!why.empty() || !check_memory(view, why)) return false;
  const ConstBuffer telling = telling_view(view);
  if (has_reduction(call.kind) && !check_reduce(call.reduce, telling.dtype, why)) return false;
  operation.in = static_cast<const std::byte*>(view.uses_in ? call.in.data : nullptr);
  operation.out = static_cast<std::byte*>(view.uses_out ? call.out.data : nullptr);
  operation.dtype = telling.dtype;
  operation.device = telling.device;
  operation.reduce = has_reduction(call.kind) ? call.reduce : ReduceOp::sum;
  operation.root = has_root(view.call.kind) ? call.root : 0;
  const bool counts_are_sound = !call.is_v ? check_equal_counts(view, operation, why)
                                : call.kind == OpKind::all_to_all
                                    ? check_all_to_all_v(view, operation, why)
                                    : check_v(view, operation, why);
  return counts_are_sound && check_overlap(view, operation, why);
}

bool check_transfer(const Transfer& transfer, const GroupShape& shape, std::string& why) {
  const bool sends = transfer.kind == OpKind::send;
  if (sends || transfer.peer != -1) {
    if (!sends && transfer.peer < -1)
      return refuse_call(why, "the peer is below 0; recv_any() receives from any rank");
    if (transfer.peer < 0 || transfer.peer >= shape.size)
      return refuse_call(why, check_rank("peer", transfer.peer, shape.size));
    if (transfer.peer == shape.me) {
      return refuse_call(
          why, fmt::format("peer {} is this rank itself; copy the memory instead", transfer.peer));
    }
  } else if (shape.size == 1) {
    return refuse_call(why, "the group has no other rank that could send");
  }
  if (transfer.tag < 0) return refuse_call(why, fmt::format("tag {} is below 0", transfer.tag));
  return check_view("data", {transfer.data, transfer.count, transfer.dtype, transfer.device}, why);
}

}  // namespace muster::worker
