#include <span>
#include <string>

#include "worker_lib/c_abi/c_abi.h"

using namespace muster;
using namespace muster::c_abi;

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
    return is_root(group, root) ? buffer(data, count) : buffer(static_cast<Data*>(nullptr), 0);
  }

  // Returns `count` times the ranks; refuses what no memory could hold.
  size_t all_blocks(size_t count) const {
    size_t total = 0;
    if (__builtin_mul_overflow(count, static_cast<size_t>(group.size()), &total)) {
      refuse("count is " + std::to_string(count) + ", and no memory holds " +
             std::to_string(group.size()) + " times as many elements");
    }
    return total;
  }
  std::span<const size_t> by_rank(const size_t* counts, const char* name = "counts") const {
    require(counts, name);
    return {counts, static_cast<size_t>(group.size())};
  }
  std::span<const size_t> by_rank_at_root(int root, const size_t* counts) const {
    return is_root(group, root) ? by_rank(counts) : std::span<const size_t>();
  }
  // Returns 0 on a rank that is not a member.
  size_t own(std::span<const size_t> counts) const {
    return group.is_member() ? counts[static_cast<size_t>(group.rank().value)] : 0;
  }

  ProcessGroup group;
  Call call;
  DType dtype;
};

}  // namespace

// Defines muster_<name>(), with these parameters before the options, from the arguments of the
// ProcessGroup method of that name. They may use `of`, the Collective.
#define MUSTER_C_COLLECTIVE(name, parameters, ...)                              \
  muster_status muster_##name(MUSTER_C_PARAMETERS parameters) {                 \
    return guarded(__func__, [&] {                                              \
      Collective of(group, dtype, options);                                     \
      perform(                                                                  \
          work, [&] { of.group.name(__VA_ARGS__, of.call.options); },           \
          [&] { return of.group.name##_async(__VA_ARGS__, of.call.options); }); \
    });                                                                         \
  }
#define MUSTER_C_PARAMETERS(...) \
  muster_group *group, __VA_ARGS__, const muster_call_options *options, muster_work **work

MUSTER_C_COLLECTIVE(broadcast, (void* data, size_t count, int dtype, int root),
                    of.buffer(data, count), GroupRank{root})
MUSTER_C_COLLECTIVE(reduce, (const void* in, void* out, size_t count, int dtype, int op, int root),
                    of.buffer(in, count), of.at_root(root, out, count), GroupRank{root},
                    reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(all_reduce, (const void* in, void* out, size_t count, int dtype, int op),
                    of.buffer(in, count), of.buffer(out, count), reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(gather, (const void* in, void* out, size_t count, int dtype, int root),
                    of.buffer(in, count), of.at_root(root, out, of.all_blocks(count)),
                    GroupRank{root})
MUSTER_C_COLLECTIVE(gather_v,
                    (const void* in, size_t in_count, void* out, const size_t* counts, int dtype,
                     int root),
                    of.buffer(in, in_count),
                    of.at_root(root, out, sum_of(of.by_rank_at_root(root, counts))),
                    of.by_rank_at_root(root, counts), GroupRank{root})
MUSTER_C_COLLECTIVE(all_gather, (const void* in, void* out, size_t count, int dtype),
                    of.buffer(in, count), of.buffer(out, of.all_blocks(count)))
MUSTER_C_COLLECTIVE(all_gather_v, (const void* in, void* out, const size_t* counts, int dtype),
                    of.buffer(in, of.own(of.by_rank(counts))),
                    of.buffer(out, sum_of(of.by_rank(counts))), of.by_rank(counts))
MUSTER_C_COLLECTIVE(scatter, (const void* in, void* out, size_t count, int dtype, int root),
                    of.at_root(root, in, of.all_blocks(count)), of.buffer(out, count),
                    GroupRank{root})
MUSTER_C_COLLECTIVE(scatter_v,
                    (const void* in, const size_t* counts, void* out, size_t out_count, int dtype,
                     int root),
                    of.at_root(root, in, sum_of(of.by_rank_at_root(root, counts))),
                    of.by_rank_at_root(root, counts), of.buffer(out, out_count), GroupRank{root})
MUSTER_C_COLLECTIVE(reduce_scatter, (const void* in, void* out, size_t count, int dtype, int op),
                    of.buffer(in, of.all_blocks(count)), of.buffer(out, count),
                    reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(reduce_scatter_v,
                    (const void* in, void* out, const size_t* counts, int dtype, int op),
                    of.buffer(in, sum_of(of.by_rank(counts))),
                    of.buffer(out, of.own(of.by_rank(counts))), of.by_rank(counts),
                    reduce_op_of_number(op))
MUSTER_C_COLLECTIVE(all_to_all, (const void* in, void* out, size_t count, int dtype),
                    of.buffer(in, of.all_blocks(count)), of.buffer(out, of.all_blocks(count)))
MUSTER_C_COLLECTIVE(all_to_all_v,
                    (const void* in, const size_t* send_counts, void* out,
                     const size_t* recv_counts, int dtype),
                    of.buffer(in, sum_of(of.by_rank(send_counts, "send_counts"))),
                    of.by_rank(send_counts, "send_counts"),
                    of.buffer(out, sum_of(of.by_rank(recv_counts, "recv_counts"))),
                    of.by_rank(recv_counts, "recv_counts"))

muster_status muster_barrier(muster_group* group, const muster_call_options* options,
                             muster_work** work) {
  return guarded(__func__, [&] {
    ProcessGroup members = group_of(group);
    const Call call(options);
    perform(
        work, [&] { members.barrier(call.options); },
        [&] { return members.barrier_async(call.options); });
  });
}

muster_status muster_monitored_barrier(muster_group* group, int wait_all_ranks,
                                       const muster_call_options* options) {
  return guarded(__func__, [&] {
    group_of(group).monitored_barrier(Call(options).options, wait_all_ranks != 0);
  });
}
