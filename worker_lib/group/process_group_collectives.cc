// The collectives of the public handle: each turns its arguments into a CollectiveCall.

#include <memory>

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

// Both are inlined into the public function that calls them: their CallSite is its return address.
[[gnu::always_inline]] inline void perform_call(const std::shared_ptr<Group>& group,
                                                const CollectiveCall& call,
                                                const CallOptions& options) {
  const CallSite site;
  value_or_raise(checked(group, call.name).perform(call, options), call.name, *group);
}

[[gnu::always_inline]] inline Work begin_call(const std::shared_ptr<Group>& group,
                                              const CollectiveCall& call,
                                              const CallOptions& options) {
  const CallSite site;
  return Work(value_or_raise(checked(group, call.name).begin(call, options), call.name, *group));
}

}  // namespace

// Defines name() and name_async(); the rest are the fields of their CollectiveCall.
#define MUSTER_COLLECTIVE(name_, parameters, ...)                      \
  void ProcessGroup::name_(MUSTER_AND_OPTIONS parameters) {            \
    perform_call(group_, {__VA_ARGS__, .name = #name_}, options);      \
  }                                                                    \
  Work ProcessGroup::name_##_async(MUSTER_AND_OPTIONS parameters) {    \
    return begin_call(group_, {__VA_ARGS__, .name = #name_}, options); \
  }
#define MUSTER_AND_OPTIONS(...) __VA_ARGS__ __VA_OPT__(, ) const CallOptions& options

MUSTER_COLLECTIVE(broadcast, (Buffer data, GroupRank root), .kind = OpKind::broadcast, .in = data,
                  .out = data, .root = root.value)
MUSTER_COLLECTIVE(reduce, (ConstBuffer in, Buffer out, GroupRank root, ReduceOp op),
                  .kind = OpKind::reduce, .in = in, .out = out, .root = root.value, .reduce = op)
MUSTER_COLLECTIVE(reduce, (Buffer data, GroupRank root, ReduceOp op), .kind = OpKind::reduce,
                  .in = data, .out = data, .root = root.value, .reduce = op)
MUSTER_COLLECTIVE(all_reduce, (ConstBuffer in, Buffer out, ReduceOp op), .kind = OpKind::all_reduce,
                  .in = in, .out = out, .reduce = op)
MUSTER_COLLECTIVE(all_reduce, (Buffer data, ReduceOp op), .kind = OpKind::all_reduce, .in = data,
                  .out = data, .reduce = op)
MUSTER_COLLECTIVE(gather, (ConstBuffer in, Buffer out, GroupRank root), .kind = OpKind::gather,
                  .in = in, .out = out, .root = root.value)
MUSTER_COLLECTIVE(gather_v, (ConstBuffer in, Buffer out, Counts counts, GroupRank root),
                  .kind = OpKind::gather, .in = in, .out = out, .root = root.value, .is_v = true,
                  .recv_counts = counts)
MUSTER_COLLECTIVE(scatter, (ConstBuffer in, Buffer out, GroupRank root), .kind = OpKind::scatter,
                  .in = in, .out = out, .root = root.value)
MUSTER_COLLECTIVE(scatter_v, (ConstBuffer in, Counts counts, Buffer out, GroupRank root),
                  .kind = OpKind::scatter, .in = in, .out = out, .root = root.value, .is_v = true,
                  .send_counts = counts)
MUSTER_COLLECTIVE(all_gather, (ConstBuffer in, Buffer out), .kind = OpKind::all_gather, .in = in,
                  .out = out)
MUSTER_COLLECTIVE(all_gather_v, (ConstBuffer in, Buffer out, Counts counts),
                  .kind = OpKind::all_gather, .in = in, .out = out, .is_v = true,
                  .recv_counts = counts)
MUSTER_COLLECTIVE(reduce_scatter, (ConstBuffer in, Buffer out, ReduceOp op),
                  .kind = OpKind::reduce_scatter, .in = in, .out = out, .reduce = op)
MUSTER_COLLECTIVE(reduce_scatter_v, (ConstBuffer in, Buffer out, Counts counts, ReduceOp op),
                  .kind = OpKind::reduce_scatter, .in = in, .out = out, .reduce = op, .is_v = true,
                  .send_counts = counts)
MUSTER_COLLECTIVE(all_to_all, (ConstBuffer in, Buffer out), .kind = OpKind::all_to_all, .in = in,
                  .out = out)
MUSTER_COLLECTIVE(all_to_all_v,
                  (ConstBuffer in, Counts send_counts, Buffer out, Counts recv_counts),
                  .kind = OpKind::all_to_all, .in = in, .out = out, .is_v = true,
                  .send_counts = send_counts, .recv_counts = recv_counts)
MUSTER_COLLECTIVE(barrier, (), .kind = OpKind::barrier)

}  // namespace muster
