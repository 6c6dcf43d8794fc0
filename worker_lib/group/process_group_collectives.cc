// The collectives of the public handle: arguments become one CollectiveCall.

#include <memory>
#include <span>

#include "muster/process_group.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/handle.h"
#include "worker_lib/recorder/call_site.h"

namespace muster {

namespace {

using worker::CallSite;
using worker::checked;
using worker::CollectiveCall;
using worker::Group;
using worker::OpKind;
using worker::value_or_raise;

// Both are part of the public function that calls them: their CallSite is where that returns to.
[[gnu::always_inline]] inline void perform_call(const std::shared_ptr<Group>& group,
                                                const CollectiveCall& call,
                                                const CallOptions& options) {
  const CallSite site;
  value_or_raise(checked(group, name_of(call)).perform(call, options), name_of(call), *group);
}

[[gnu::always_inline]] inline Work begin_call(const std::shared_ptr<Group>& group,
                                              const CollectiveCall& call,
                                              const CallOptions& options) {
  const CallSite site;
  return Work(
      value_or_raise(checked(group, name_of(call)).begin(call, options), name_of(call), *group));
}

struct CountsByRank {
  std::span<const size_t> send = {};
  std::span<const size_t> recv = {};
};

CollectiveCall with_counts(CollectiveCall call, const char* name, const CountsByRank& counts) {
  call.is_v = true;
  call.send_counts = counts.send;
  call.recv_counts = counts.recv;
  call.name = name;
  return call;
}

CollectiveCall broadcast_call(Buffer data, GroupRank root) {
  return {.kind = OpKind::broadcast, .in = data, .out = data, .root = root.value};
}

CollectiveCall reduce_call(ConstBuffer in, Buffer out, GroupRank root, ReduceOp op) {
  return {.kind = OpKind::reduce, .in = in, .out = out, .root = root.value, .reduce = op};
}

CollectiveCall all_reduce_call(ConstBuffer in, Buffer out, ReduceOp op) {
  return {.kind = OpKind::all_reduce, .in = in, .out = out, .reduce = op};
}

CollectiveCall gather_call(ConstBuffer in, Buffer out, GroupRank root) {
  return {.kind = OpKind::gather, .in = in, .out = out, .root = root.value};
}

CollectiveCall gather_v_call(ConstBuffer in, Buffer out, std::span<const size_t> counts,
                             GroupRank root) {
  return with_counts(gather_call(in, out, root), "gather_v", {.recv = counts});
}

CollectiveCall scatter_call(ConstBuffer in, Buffer out, GroupRank root) {
  return {.kind = OpKind::scatter, .in = in, .out = out, .root = root.value};
}

CollectiveCall scatter_v_call(ConstBuffer in, std::span<const size_t> counts, Buffer out,
                              GroupRank root) {
  return with_counts(scatter_call(in, out, root), "scatter_v", {.send = counts});
}

CollectiveCall all_gather_call(ConstBuffer in, Buffer out) {
  return {.kind = OpKind::all_gather, .in = in, .out = out};
}

CollectiveCall all_gather_v_call(ConstBuffer in, Buffer out, std::span<const size_t> counts) {
  return with_counts(all_gather_call(in, out), "all_gather_v", {.recv = counts});
}

CollectiveCall reduce_scatter_call(ConstBuffer in, Buffer out, ReduceOp op) {
  return {.kind = OpKind::reduce_scatter, .in = in, .out = out, .reduce = op};
}

CollectiveCall reduce_scatter_v_call(ConstBuffer in, Buffer out, std::span<const size_t> counts,
                                     ReduceOp op) {
  return with_counts(reduce_scatter_call(in, out, op), "reduce_scatter_v", {.send = counts});
}

CollectiveCall all_to_all_call(ConstBuffer in, Buffer out) {
  return {.kind = OpKind::all_to_all, .in = in, .out = out};
}

CollectiveCall all_to_all_v_call(ConstBuffer in, std::span<const size_t> send_counts, Buffer out,
                                 std::span<const size_t> recv_counts) {
  return with_counts(all_to_all_call(in, out), "all_to_all_v", {send_counts, recv_counts});
}

}  // namespace

void ProcessGroup::broadcast(Buffer data, GroupRank root, const CallOptions& options) {
  perform_call(group_, broadcast_call(data, root), options);
}

Work ProcessGroup::broadcast_async(Buffer data, GroupRank root, const CallOptions& options) {
  return begin_call(group_, broadcast_call(data, root), options);
}

void ProcessGroup::reduce(ConstBuffer in, Buffer out, GroupRank root, ReduceOp op,
                          const CallOptions& options) {
  perform_call(group_, reduce_call(in, out, root, op), options);
}

void ProcessGroup::reduce(Buffer data, GroupRank root, ReduceOp op, const CallOptions& options) {
  perform_call(group_, reduce_call(data, data, root, op), options);
}

Work ProcessGroup::reduce_async(ConstBuffer in, Buffer out, GroupRank root, ReduceOp op,
                                const CallOptions& options) {
  return begin_call(group_, reduce_call(in, out, root, op), options);
}

Work ProcessGroup::reduce_async(Buffer data, GroupRank root, ReduceOp op,
                                const CallOptions& options) {
  return begin_call(group_, reduce_call(data, data, root, op), options);
}

void ProcessGroup::gather(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options) {
  perform_call(group_, gather_call(in, out, root), options);
}

Work ProcessGroup::gather_async(ConstBuffer in, Buffer out, GroupRank root,
                                const CallOptions& options) {
  return begin_call(group_, gather_call(in, out, root), options);
}

void ProcessGroup::gather_v(ConstBuffer in, Buffer out, Counts counts, GroupRank root,
                            const CallOptions& options) {
  perform_call(group_, gather_v_call(in, out, counts, root), options);
}

Work ProcessGroup::gather_v_async(ConstBuffer in, Buffer out, Counts counts, GroupRank root,
                                  const CallOptions& options) {
  return begin_call(group_, gather_v_call(in, out, counts, root), options);
}

void ProcessGroup::scatter(ConstBuffer in, Buffer out, GroupRank root, const CallOptions& options) {
  perform_call(group_, scatter_call(in, out, root), options);
}

Work ProcessGroup::scatter_async(ConstBuffer in, Buffer out, GroupRank root,
                                 const CallOptions& options) {
  return begin_call(group_, scatter_call(in, out, root), options);
}

void ProcessGroup::scatter_v(ConstBuffer in, Counts counts, Buffer out, GroupRank root,
                             const CallOptions& options) {
  perform_call(group_, scatter_v_call(in, counts, out, root), options);
}

Work ProcessGroup::scatter_v_async(ConstBuffer in, Counts counts, Buffer out, GroupRank root,
                                   const CallOptions& options) {
  return begin_call(group_, scatter_v_call(in, counts, out, root), options);
}

void ProcessGroup::all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& options) {
  perform_call(group_, all_reduce_call(in, out, op), options);
}

void ProcessGroup::all_reduce(Buffer data, ReduceOp op, const CallOptions& options) {
  perform_call(group_, all_reduce_call(data, data, op), options);
}

Work ProcessGroup::all_reduce_async(ConstBuffer in, Buffer out, ReduceOp op,
                                    const CallOptions& options) {
  return begin_call(group_, all_reduce_call(in, out, op), options);
}

Work ProcessGroup::all_reduce_async(Buffer data, ReduceOp op, const CallOptions& options) {
  return begin_call(group_, all_reduce_call(data, data, op), options);
}

void ProcessGroup::all_gather(ConstBuffer in, Buffer out, const CallOptions& options) {
  perform_call(group_, all_gather_call(in, out), options);
}

Work ProcessGroup::all_gather_async(ConstBuffer in, Buffer out, const CallOptions& options) {
  return begin_call(group_, all_gather_call(in, out), options);
}

void ProcessGroup::all_gather_v(ConstBuffer in, Buffer out, Counts counts,
                                const CallOptions& options) {
  perform_call(group_, all_gather_v_call(in, out, counts), options);
}

Work ProcessGroup::all_gather_v_async(ConstBuffer in, Buffer out, Counts counts,
                                      const CallOptions& options) {
  return begin_call(group_, all_gather_v_call(in, out, counts), options);
}

void ProcessGroup::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op,
                                  const CallOptions& options) {
  perform_call(group_, reduce_scatter_call(in, out, op), options);
}

Work ProcessGroup::reduce_scatter_async(ConstBuffer in, Buffer out, ReduceOp op,
                                        const CallOptions& options) {
  return begin_call(group_, reduce_scatter_call(in, out, op), options);
}

void ProcessGroup::reduce_scatter_v(ConstBuffer in, Buffer out, Counts counts, ReduceOp op,
                                    const CallOptions& options) {
  perform_call(group_, reduce_scatter_v_call(in, out, counts, op), options);
}

Work ProcessGroup::reduce_scatter_v_async(ConstBuffer in, Buffer out, Counts counts, ReduceOp op,
                                          const CallOptions& options) {
  return begin_call(group_, reduce_scatter_v_call(in, out, counts, op), options);
}

void ProcessGroup::all_to_all(ConstBuffer in, Buffer out, const CallOptions& options) {
  perform_call(group_, all_to_all_call(in, out), options);
}

Work ProcessGroup::all_to_all_async(ConstBuffer in, Buffer out, const CallOptions& options) {
  return begin_call(group_, all_to_all_call(in, out), options);
}

void ProcessGroup::all_to_all_v(ConstBuffer in, Counts send_counts, Buffer out, Counts recv_counts,
                                const CallOptions& options) {
  perform_call(group_, all_to_all_v_call(in, send_counts, out, recv_counts), options);
}

Work ProcessGroup::all_to_all_v_async(ConstBuffer in, Counts send_counts, Buffer out,
                                      Counts recv_counts, const CallOptions& options) {
  return begin_call(group_, all_to_all_v_call(in, send_counts, out, recv_counts), options);
}

void ProcessGroup::barrier(const CallOptions& options) {
  perform_call(group_, {.kind = OpKind::barrier}, options);
}

Work ProcessGroup::barrier_async(const CallOptions& options) {
  return begin_call(group_, {.kind = OpKind::barrier}, options);
}

}  // namespace muster
