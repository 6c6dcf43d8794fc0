#include <span>
#include <string>
#include <type_traits>

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

// What every collective function takes.
struct Collective {
  Collective(muster_group* handle, int dtype_number, const muster_call_options* given,
             muster_work** begun)
      : group(group_of(handle)), call(given), dtype(dtype_of_number(dtype_number)), work(begun) {}

  // `Data`: void or const void.
  template <typename Data>
  auto buffer(Data* data, size_t count) const {
    return call.buffer(data, count, dtype);
  }
  // For the root only: elsewhere an empty buffer, which is ignored.
  template <typename Data>
  auto at_root(int root, Data* data, size_t count) const {
    return is_root(group, root) ? buffer(data, count) : buffer(static_cast<Data*>(nullptr), 0);
  }

  // `count` for each rank; refuses what no memory could hold.
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
  // 0 for a rank that is not a member.
  size_t own(std::span<const size_t> counts) const {
    return group.is_member() ? counts[static_cast<size_t>(group.rank().value)] : 0;
  }

  // Calls `run` if `work` is null, else `begin`. The caller names the parameter types, since the
  // functions are overloaded; type_identity_t keeps them from being deduced.
  template <typename... Arguments>
  void perform(std::type_identity_t<void (ProcessGroup::*)(Arguments..., const CallOptions&)> run,
               std::type_identity_t<Work (ProcessGroup::*)(Arguments..., const CallOptions&)> begin,
               std::type_identity_t<Arguments>... arguments) {
    c_abi::perform(
        work, [&] { (group.*run)(arguments..., call.options); },
        [&] { return (group.*begin)(arguments..., call.options); });
  }

  ProcessGroup group;
  Call call;
  DType dtype;
  muster_work** work;
};

template <typename Body>
[[gnu::always_inline]] inline muster_status collective(const char* function, muster_group* group,
                                                       int dtype,
                                                       const muster_call_options* options,
                                                       muster_work** work, const Body& body) {
  return guarded(function, [&] {
    Collective of(group, dtype, options, work);
    body(of);
  });
}

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
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    of.perform<Buffer, GroupRank>(&ProcessGroup::broadcast, &ProcessGroup::broadcast_async,
                                  of.buffer(data, count), GroupRank{root});
  });
}

muster_status muster_reduce(muster_group* group, const void* in, void* out, size_t count, int dtype,
                            int op, int root, const muster_call_options* options,
                            muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const ReduceOp reduction = reduce_op_of_number(op);
    of.perform<ConstBuffer, Buffer, GroupRank, ReduceOp>(
        &ProcessGroup::reduce, &ProcessGroup::reduce_async, of.buffer(in, count),
        of.at_root(root, out, count), GroupRank{root}, reduction);
  });
}

muster_status muster_all_reduce(muster_group* group, const void* in, void* out, size_t count,
                                int dtype, int op, const muster_call_options* options,
                                muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const ReduceOp reduction = reduce_op_of_number(op);
    of.perform<ConstBuffer, Buffer, ReduceOp>(&ProcessGroup::all_reduce,
                                              &ProcessGroup::all_reduce_async, of.buffer(in, count),
                                              of.buffer(out, count), reduction);
  });
}

muster_status muster_gather(muster_group* group, const void* in, void* out, size_t count, int dtype,
                            int root, const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    of.perform<ConstBuffer, Buffer, GroupRank>(
        &ProcessGroup::gather, &ProcessGroup::gather_async, of.buffer(in, count),
        of.at_root(root, out, of.all_blocks(count)), GroupRank{root});
  });
}

muster_status muster_gather_v(muster_group* group, const void* in, size_t in_count, void* out,
                              const size_t* counts, int dtype, int root,
                              const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const auto blocks = of.by_rank_at_root(root, counts);
    of.perform<ConstBuffer, Buffer, Counts, GroupRank>(
        &ProcessGroup::gather_v, &ProcessGroup::gather_v_async, of.buffer(in, in_count),
        of.at_root(root, out, sum_of(blocks)), blocks, GroupRank{root});
  });
}

muster_status muster_all_gather(muster_group* group, const void* in, void* out, size_t count,
                                int dtype, const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    of.perform<ConstBuffer, Buffer>(&ProcessGroup::all_gather, &ProcessGroup::all_gather_async,
                                    of.buffer(in, count), of.buffer(out, of.all_blocks(count)));
  });
}

muster_status muster_all_gather_v(muster_group* group, const void* in, void* out,
                                  const size_t* counts, int dtype,
                                  const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const auto blocks = of.by_rank(counts);
    of.perform<ConstBuffer, Buffer, Counts>(
        &ProcessGroup::all_gather_v, &ProcessGroup::all_gather_v_async,
        of.buffer(in, of.own(blocks)), of.buffer(out, sum_of(blocks)), blocks);
  });
}

muster_status muster_scatter(muster_group* group, const void* in, void* out, size_t count,
                             int dtype, int root, const muster_call_options* options,
                             muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    of.perform<ConstBuffer, Buffer, GroupRank>(&ProcessGroup::scatter, &ProcessGroup::scatter_async,
                                               of.at_root(root, in, of.all_blocks(count)),
                                               of.buffer(out, count), GroupRank{root});
  });
}

muster_status muster_scatter_v(muster_group* group, const void* in, const size_t* counts, void* out,
                               size_t out_count, int dtype, int root,
                               const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const auto blocks = of.by_rank_at_root(root, counts);
    of.perform<ConstBuffer, Counts, Buffer, GroupRank>(
        &ProcessGroup::scatter_v, &ProcessGroup::scatter_v_async,
        of.at_root(root, in, sum_of(blocks)), blocks, of.buffer(out, out_count), GroupRank{root});
  });
}

muster_status muster_reduce_scatter(muster_group* group, const void* in, void* out, size_t count,
                                    int dtype, int op, const muster_call_options* options,
                                    muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const ReduceOp reduction = reduce_op_of_number(op);
    of.perform<ConstBuffer, Buffer, ReduceOp>(
        &ProcessGroup::reduce_scatter, &ProcessGroup::reduce_scatter_async,
        of.buffer(in, of.all_blocks(count)), of.buffer(out, count), reduction);
  });
}

muster_status muster_reduce_scatter_v(muster_group* group, const void* in, void* out,
                                      const size_t* counts, int dtype, int op,
                                      const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const ReduceOp reduction = reduce_op_of_number(op);
    const auto blocks = of.by_rank(counts);
    of.perform<ConstBuffer, Buffer, Counts, ReduceOp>(
        &ProcessGroup::reduce_scatter_v, &ProcessGroup::reduce_scatter_v_async,
        of.buffer(in, sum_of(blocks)), of.buffer(out, of.own(blocks)), blocks, reduction);
  });
}

muster_status muster_all_to_all(muster_group* group, const void* in, void* out, size_t count,
                                int dtype, const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const size_t total = of.all_blocks(count);
    of.perform<ConstBuffer, Buffer>(&ProcessGroup::all_to_all, &ProcessGroup::all_to_all_async,
                                    of.buffer(in, total), of.buffer(out, total));
  });
}

muster_status muster_all_to_all_v(muster_group* group, const void* in, const size_t* send_counts,
                                  void* out, const size_t* recv_counts, int dtype,
                                  const muster_call_options* options, muster_work** work) {
  return collective(__func__, group, dtype, options, work, [&](Collective& of) {
    const auto sent = of.by_rank(send_counts, "send_counts");
    const auto received = of.by_rank(recv_counts, "recv_counts");
    of.perform<ConstBuffer, Counts, Buffer, Counts>(
        &ProcessGroup::all_to_all_v, &ProcessGroup::all_to_all_v_async, of.buffer(in, sum_of(sent)),
        sent, of.buffer(out, sum_of(received)), received);
  });
}
