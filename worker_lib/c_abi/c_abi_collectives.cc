#include "worker_lib/c_abi/c_abi.h"

using namespace muster;
using namespace muster::c_abi;

namespace {

// What every collective function takes.
struct Collective {
  Collective(muster_group* handle, int dtype_number, const muster_call_options* given)
      : group(group_of(handle)), call(given), dtype(dtype_of_number(dtype_number)) {}

  Buffer buffer(void* data, size_t count) const { return call.buffer(data, count, dtype); }
  ConstBuffer buffer(const void* data, size_t count) const {
    return call.buffer(data, count, dtype);
  }
  // For the root only: elsewhere an empty buffer, which is ignored.
  Buffer at_root(int root, void* data, size_t count) const {
    return is_root(group, root) ? buffer(data, count) : buffer(static_cast<void*>(nullptr), 0);
  }
  ConstBuffer at_root(int root, const void* data, size_t count) const {
    return is_root(group, root) ? buffer(data, count)
                                : buffer(static_cast<const void*>(nullptr), 0);
  }
  std::span<const size_t> counts_at_root(int root, const size_t* counts) const {
    if (!is_root(group, root)) return {};
    return counts_of(group, counts, "counts");
  }

  ProcessGroup group;
  Call call;
  DType dtype;
};

}  // namespace

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

muster_status muster_broadcast(muster_group* group, void* data, size_t count, int dtype, int root,
                               const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const Buffer all = of.buffer(data, count);
    perform(
        work, [&] { of.group.broadcast(all, GroupRank{root}, of.call.options); },
        [&] { return of.group.broadcast_async(all, GroupRank{root}, of.call.options); });
  });
}

muster_status muster_reduce(muster_group* group, const void* in, void* out, size_t count, int dtype,
                            int op, int root, const muster_call_options* options,
                            muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ReduceOp reduction = reduce_op_of_number(op);
    const ConstBuffer from = of.buffer(in, count);
    const Buffer to = of.at_root(root, out, count);
    perform(
        work, [&] { of.group.reduce(from, to, GroupRank{root}, reduction, of.call.options); },
        [&] {
          return of.group.reduce_async(from, to, GroupRank{root}, reduction, of.call.options);
        });
  });
}

muster_status muster_all_reduce(muster_group* group, const void* in, void* out, size_t count,
                                int dtype, int op, const muster_call_options* options,
                                muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ReduceOp reduction = reduce_op_of_number(op);
    const ConstBuffer from = of.buffer(in, count);
    const Buffer to = of.buffer(out, count);
    perform(
        work, [&] { of.group.all_reduce(from, to, reduction, of.call.options); },
        [&] { return of.group.all_reduce_async(from, to, reduction, of.call.options); });
  });
}

muster_status muster_gather(muster_group* group, const void* in, void* out, size_t count, int dtype,
                            int root, const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ConstBuffer from = of.buffer(in, count);
    const Buffer to = of.at_root(root, out, all_blocks(of.group, count));
    perform(
        work, [&] { of.group.gather(from, to, GroupRank{root}, of.call.options); },
        [&] { return of.group.gather_async(from, to, GroupRank{root}, of.call.options); });
  });
}

muster_status muster_gather_v(muster_group* group, const void* in, size_t in_count, void* out,
                              const size_t* counts, int dtype, int root,
                              const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const auto blocks = of.counts_at_root(root, counts);
    const ConstBuffer from = of.buffer(in, in_count);
    const Buffer to = of.at_root(root, out, sum_of(blocks));
    perform(
        work, [&] { of.group.gather_v(from, to, blocks, GroupRank{root}, of.call.options); },
        [&] {
          return of.group.gather_v_async(from, to, blocks, GroupRank{root}, of.call.options);
        });
  });
}

muster_status muster_all_gather(muster_group* group, const void* in, void* out, size_t count,
                                int dtype, const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ConstBuffer from = of.buffer(in, count);
    const Buffer to = of.buffer(out, all_blocks(of.group, count));
    perform(
        work, [&] { of.group.all_gather(from, to, of.call.options); },
        [&] { return of.group.all_gather_async(from, to, of.call.options); });
  });
}

muster_status muster_all_gather_v(muster_group* group, const void* in, void* out,
                                  const size_t* counts, int dtype,
                                  const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const auto blocks = counts_of(of.group, counts, "counts");
    const ConstBuffer from = of.buffer(in, own_count(of.group, blocks));
    const Buffer to = of.buffer(out, sum_of(blocks));
    perform(
        work, [&] { of.group.all_gather_v(from, to, blocks, of.call.options); },
        [&] { return of.group.all_gather_v_async(from, to, blocks, of.call.options); });
  });
}

muster_status muster_scatter(muster_group* group, const void* in, void* out, size_t count,
                             int dtype, int root, const muster_call_options* options,
                             muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ConstBuffer from = of.at_root(root, in, all_blocks(of.group, count));
    const Buffer to = of.buffer(out, count);
    perform(
        work, [&] { of.group.scatter(from, to, GroupRank{root}, of.call.options); },
        [&] { return of.group.scatter_async(from, to, GroupRank{root}, of.call.options); });
  });
}

muster_status muster_scatter_v(muster_group* group, const void* in, const size_t* counts, void* out,
                               size_t out_count, int dtype, int root,
                               const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const auto blocks = of.counts_at_root(root, counts);
    const ConstBuffer from = of.at_root(root, in, sum_of(blocks));
    const Buffer to = of.buffer(out, out_count);
    perform(
        work, [&] { of.group.scatter_v(from, blocks, to, GroupRank{root}, of.call.options); },
        [&] {
          return of.group.scatter_v_async(from, blocks, to, GroupRank{root}, of.call.options);
        });
  });
}

muster_status muster_reduce_scatter(muster_group* group, const void* in, void* out, size_t count,
                                    int dtype, int op, const muster_call_options* options,
                                    muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ReduceOp reduction = reduce_op_of_number(op);
    const ConstBuffer from = of.buffer(in, all_blocks(of.group, count));
    const Buffer to = of.buffer(out, count);
    perform(
        work, [&] { of.group.reduce_scatter(from, to, reduction, of.call.options); },
        [&] { return of.group.reduce_scatter_async(from, to, reduction, of.call.options); });
  });
}

muster_status muster_reduce_scatter_v(muster_group* group, const void* in, void* out,
                                      const size_t* counts, int dtype, int op,
                                      const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const ReduceOp reduction = reduce_op_of_number(op);
    const auto blocks = counts_of(of.group, counts, "counts");
    const ConstBuffer from = of.buffer(in, sum_of(blocks));
    const Buffer to = of.buffer(out, own_count(of.group, blocks));
    perform(
        work, [&] { of.group.reduce_scatter_v(from, to, blocks, reduction, of.call.options); },
        [&] {
          return of.group.reduce_scatter_v_async(from, to, blocks, reduction, of.call.options);
        });
  });
}

muster_status muster_all_to_all(muster_group* group, const void* in, void* out, size_t count,
                                int dtype, const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const size_t total = all_blocks(of.group, count);
    const ConstBuffer from = of.buffer(in, total);
    const Buffer to = of.buffer(out, total);
    perform(
        work, [&] { of.group.all_to_all(from, to, of.call.options); },
        [&] { return of.group.all_to_all_async(from, to, of.call.options); });
  });
}

muster_status muster_all_to_all_v(muster_group* group, const void* in, const size_t* send_counts,
                                  void* out, const size_t* recv_counts, int dtype,
                                  const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    Collective of(group, dtype, options);
    const auto sent = counts_of(of.group, send_counts, "send_counts");
    const auto received = counts_of(of.group, recv_counts, "recv_counts");
    const ConstBuffer from = of.buffer(in, sum_of(sent));
    const Buffer to = of.buffer(out, sum_of(received));
    perform(
        work, [&] { of.group.all_to_all_v(from, sent, to, received, of.call.options); },
        [&] { return of.group.all_to_all_v_async(from, sent, to, received, of.call.options); });
  });
}
