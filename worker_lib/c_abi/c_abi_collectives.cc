#include <array>
#include <memory>
#include <span>
#include <string>

#include "worker_lib/c_abi/c_abi.h"

using namespace muster;
using namespace muster::c_abi;
using muster::worker::CollectiveCall;
using muster::worker::Group;
using muster::worker::OpKind;

namespace {

size_t sum_of(std::span<const size_t> counts) {
  size_t total = 0;
  for (const size_t count : counts) {
    if (__builtin_add_overflow(total, count, &total)) {
      refuse("the counts add up to more elements than any memory holds");
    }
  }
  return total;
}

// True if the buffers that only the root needs are used. Also true on a rank that is not a member,
// which the operation itself refuses.
bool is_root(const Group& group, int root) {
  return !group.is_member() || group.members().me == root;
}

// Arguments of every collective function.
struct Collective {
  Collective(muster_group* handle, int dtype_number, const muster_call_options* given)
      : group(group_of(handle)), call(given), dtype(dtype_of_number(dtype_number)) {}

  // `Data`: void or const void.
  template <typename Data>
  auto buffer(Data* data, size_t count) const {
    return call.buffer(data, count, dtype);
  }
  // Returns a buffer on the root; elsewhere an empty one, which is ignored.
  template <typename Data>
  auto at_root(int root, Data* data, size_t count) const {
    return is_root(*group, root) ? buffer(data, count) : buffer(static_cast<Data*>(nullptr), 0);
  }

  size_t size() const { return static_cast<size_t>(group->members().size()); }
  // Returns `count` times the ranks; refuses what no memory could hold.
  size_t all_blocks(size_t count) const {
    size_t total = 0;
    if (__builtin_mul_overflow(count, size(), &total)) {
      refuse("count is " + std::to_string(count) + ", and no memory holds " +
             std::to_string(size()) + " times as many elements");
    }
    return total;
  }
  std::span<const size_t> by_rank(const size_t* counts, const char* name = "counts") const {
    require(counts, name);
    return {counts, size()};
  }
  std::span<const size_t> by_rank_at_root(int root, const size_t* counts) const {
    return is_root(*group, root) ? by_rank(counts) : std::span<const size_t>();
  }
  // Returns 0 on a rank that is not a member.
  size_t own(std::span<const size_t> counts) const {
    return group->is_member() ? counts[static_cast<size_t>(group->members().me)] : 0;
  }

  std::shared_ptr<Group> group;
  Call call;
  DType dtype;
};

std::span<const size_t> given_counts(const size_t* counts, size_t length, const char* name) {
  if (length > 0) require(counts, name);
  return {counts, length};
}

CollectiveCall collective_of(const muster_operation& given) {
  static constexpr std::array<const char*, MUSTER_ALL_TO_ALL + 1> kWithCounts{
      nullptr,        nullptr,     nullptr,
      nullptr,        nullptr,     "gather_v",
      "all_gather_v", "scatter_v", "reduce_scatter_v",
      "all_to_all_v"};
  const auto kind = static_cast<OpKind>(given.kind);
  if (kind == OpKind::barrier) return {.kind = kind};
  const char* const name = given.is_v != 0 ? kWithCounts[static_cast<size_t>(given.kind)] : nullptr;
  return {.kind = kind,
          .in = buffer_of(given.in),
          .out = buffer_of(given.out),
          .root = given.root,
          .reduce = reduce_op_of_number(given.reduce_op),
          .is_v = name != nullptr,
          .send_counts = given_counts(given.send_counts, given.send_counts_length, "send_counts"),
          .recv_counts = given_counts(given.recv_counts, given.recv_counts_length, "recv_counts"),
          .name = name};
}

}  // namespace

void muster::c_abi::perform(Group& group, const CollectiveCall& call, const CallOptions& options,
                            muster_work** work) {
  if (work == nullptr) {
    value_or_raise(group.perform(call, options), name_of(call), group);
  } else {
    hand_out(work, "work",
             [&] { return value_or_raise(group.begin(call, options), name_of(call), group); });
  }
}

// Defines muster_<name>(), with these parameters before the options, from the fields of its
// CollectiveCall. They may use `of`, the Collective.
#define MUSTER_C_COLLECTIVE(name_, parameters, ...)                             \
  muster_status muster_##name_(MUSTER_C_PARAMETERS parameters) {                \
    return guarded(__func__, [&] {                                              \
      const Collective of(group, dtype, options);                               \
      perform(*of.group, {__VA_ARGS__, .name = #name_}, of.call.options, work); \
    });                                                                         \
  }
#define MUSTER_C_PARAMETERS(...) \
  muster_group *group, __VA_ARGS__, const muster_call_options *options, muster_work **work

MUSTER_C_COLLECTIVE(broadcast, (void* data, size_t count, int dtype, int root),
                    .kind = OpKind::broadcast, .in = of.buffer(data, count),
                    .out = of.buffer(data, count), .root = root)
MUSTER_C_COLLECTIVE(reduce, (const void* in, void* out, size_t count, int dtype, int op, int root),
                    .kind = OpKind::reduce, .in = of.buffer(in, count),
                    .out = of.at_root(root, out, count), .root = root,
                    .reduce = reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(all_reduce, (const void* in, void* out, size_t count, int dtype, int op),
                    .kind = OpKind::all_reduce, .in = of.buffer(in, count),
                    .out = of.buffer(out, count), .reduce = reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(gather, (const void* in, void* out, size_t count, int dtype, int root),
                    .kind = OpKind::gather, .in = of.buffer(in, count),
                    .out = of.at_root(root, out, of.all_blocks(count)), .root = root)
MUSTER_C_COLLECTIVE(gather_v,
                    (const void* in, size_t in_count, void* out, const size_t* counts, int dtype,
                     int root),
                    .kind = OpKind::gather, .in = of.buffer(in, in_count),
                    .out = of.at_root(root, out, sum_of(of.by_rank_at_root(root, counts))),
                    .root = root, .is_v = true, .recv_counts = of.by_rank_at_root(root, counts))
MUSTER_C_COLLECTIVE(all_gather, (const void* in, void* out, size_t count, int dtype),
                    .kind = OpKind::all_gather, .in = of.buffer(in, count),
                    .out = of.buffer(out, of.all_blocks(count)))
MUSTER_C_COLLECTIVE(all_gather_v, (const void* in, void* out, const size_t* counts, int dtype),
                    .kind = OpKind::all_gather, .in = of.buffer(in, of.own(of.by_rank(counts))),
                    .out = of.buffer(out, sum_of(of.by_rank(counts))), .is_v = true,
                    .recv_counts = of.by_rank(counts))
MUSTER_C_COLLECTIVE(scatter, (const void* in, void* out, size_t count, int dtype, int root),
                    .kind = OpKind::scatter, .in = of.at_root(root, in, of.all_blocks(count)),
                    .out = of.buffer(out, count), .root = root)
MUSTER_C_COLLECTIVE(scatter_v,
                    (const void* in, const size_t* counts, void* out, size_t out_count, int dtype,
                     int root),
                    .kind = OpKind::scatter,
                    .in = of.at_root(root, in, sum_of(of.by_rank_at_root(root, counts))),
                    .out = of.buffer(out, out_count), .root = root, .is_v = true,
                    .send_counts = of.by_rank_at_root(root, counts))
MUSTER_C_COLLECTIVE(reduce_scatter, (const void* in, void* out, size_t count, int dtype, int op),
                    .kind = OpKind::reduce_scatter, .in = of.buffer(in, of.all_blocks(count)),
                    .out = of.buffer(out, count), .reduce = reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(reduce_scatter_v,
                    (const void* in, void* out, const size_t* counts, int dtype, int op),
                    .kind = OpKind::reduce_scatter, .in = of.buffer(in, sum_of(of.by_rank(counts))),
                    .out = of.buffer(out, of.own(of.by_rank(counts))),
                    .reduce = reduce_op_of_number(op), .is_v = true,
                    .send_counts = of.by_rank(counts))
MUSTER_C_COLLECTIVE(all_to_all, (const void* in, void* out, size_t count, int dtype),
                    .kind = OpKind::all_to_all, .in = of.buffer(in, of.all_blocks(count)),
                    .out = of.buffer(out, of.all_blocks(count)))
MUSTER_C_COLLECTIVE(all_to_all_v,
                    (const void* in, const size_t* send_counts, void* out,
                     const size_t* recv_counts, int dtype),
                    .kind = OpKind::all_to_all,
                    .in = of.buffer(in, sum_of(of.by_rank(send_counts, "send_counts"))),
                    .out = of.buffer(out, sum_of(of.by_rank(recv_counts, "recv_counts"))),
                    .is_v = true, .send_counts = of.by_rank(send_counts, "send_counts"),
                    .recv_counts = of.by_rank(recv_counts, "recv_counts"))

muster_status muster_barrier(muster_group* group, const muster_call_options* options,
                             muster_work** work) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    perform(*members, {.kind = OpKind::barrier}, Call(options).options, work);
  });
}

muster_status muster_monitored_barrier(muster_group* group, int wait_all_ranks,
                                       const muster_call_options* options) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    value_or_raise(members->monitored_barrier(Call(options).options, wait_all_ranks != 0),
                   "monitored_barrier", *members);
  });
}

muster_status muster_perform(muster_group* group, const muster_operation* operation,
                             const muster_call_options* options, muster_work** work, int* source) {
  return guarded(__func__, [&] {
    require(operation, "operation");
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    if (is_message(*operation)) {
      const int sender =
          perform_transfer(*members, transfer_of(*operation, call.options), call.options, work);
      if (work == nullptr && source != nullptr) *source = sender;
    } else if (operation->kind >= MUSTER_BARRIER && operation->kind <= MUSTER_ALL_TO_ALL) {
      perform(*members, collective_of(*operation), call.options, work);
    } else {
      refuse(std::to_string(operation->kind) + " is not a valid muster_kind");
    }
  });
}
