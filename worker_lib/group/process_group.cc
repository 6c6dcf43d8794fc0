// The public handle: turns arguments into a CollectiveCall or Transfer, failures into exceptions.
#include "muster/process_group.h"

#include <algorithm>

#include <fmt/format.h>

#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_bytes.h"
#include "worker_lib/group/handle.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/recorder/call_site.h"

namespace muster {

namespace {

using worker::CallSite;
using worker::checked;
using worker::Failure;
using worker::Group;
using worker::OpKind;
using worker::Outcome;
using worker::Transfer;
using worker::value_or_raise;

// Inlined into the public function that calls it, as is begin_transfers(): see CallSite.
[[gnu::always_inline]] inline int transfer_now(const std::shared_ptr<Group>& group,
                                               const Transfer& transfer,
                                               const CallOptions& options) {
  const CallSite site;
  const char* const name = name_of(transfer.kind);
  return value_or_raise(checked(group, name).transfer(transfer, options), name, *group);
}

[[gnu::always_inline]] inline std::vector<Work> begin_transfers(const std::shared_ptr<Group>& group,
                                                                std::vector<Transfer> transfers,
                                                                const char* operation,
                                                                const CallOptions& options) {
  const CallSite site;
  auto states = value_or_raise(checked(group, operation).begin(std::move(transfers), options),
                               operation, *group);
  std::vector<Work> works;
  works.reserve(states.size());
  for (auto& state : states)
    works.emplace_back(std::move(state));
  return works;
}

// Casts const away: a send only reads, but shares the type of a receive.
Transfer send_of(ConstBuffer data, GroupRank to, int tag, const CallOptions& options) {
  auto* const bytes = static_cast<std::byte*>(const_cast<void*>(data.data));
  return {OpKind::send, bytes, data.count, data.dtype, to.value, tag, data.device, options.stream};
}

Transfer recv_of(Buffer data, GroupRank from, int tag, const CallOptions& options) {
  auto* const bytes = static_cast<std::byte*>(data.data);
  const int peer = from.value < 0 ? -2 : from.value;  // Internally, -1 means any peer.
  return {OpKind::recv, bytes, data.count, data.dtype, peer, tag, data.device, options.stream};
}

[[noreturn]] void refuse_query(const Group& group, ErrorCode code, const char* call,
                               std::string why) {
  worker::raise(
      worker::labelled({code, std::move(why)}, worker::operation_label(call, 0, group.name())),
      call, group.name());
}

Transfer recv_any_of(Buffer data, int tag, const CallOptions& options) {
  Transfer made = recv_of(data, GroupRank{0}, tag, options);
  made.peer = -1;
  return made;
}

}  // namespace

void worker::throw_empty_group(const char* operation) {
  worker::raise({ErrorCode::invalid_argument,
                 fmt::format("{}: empty ProcessGroup: get one from world(), new_group() or split()",
                             operation)},
                operation, {});
}

ProcessGroup::ProcessGroup(std::shared_ptr<worker::Group> group) : group_(std::move(group)) {}

bool ProcessGroup::is_member() const {
  return checked(group_, "is_member").is_member();
}

GroupRank ProcessGroup::rank() const {
  const Group& group = checked(group_, "rank");
  if (group.is_member()) return GroupRank{group.members().me};
  refuse_query(group, ErrorCode::not_member, "rank",
               "this rank is not a member of it (see is_member())");
}

int ProcessGroup::size() const {
  return checked(group_, "size").members().size();
}

const std::vector<GlobalRank>& ProcessGroup::ranks() const {
  return checked(group_, "ranks").ranks();
}

GlobalRank ProcessGroup::global_rank(GroupRank rank) const {
  const Group& group = checked(group_, "global_rank");
  const std::string why = worker::check_rank("rank", rank.value, group.members().size());
  if (why.empty()) return group.ranks()[static_cast<size_t>(rank.value)];
  refuse_query(group, ErrorCode::invalid_argument, "global_rank", why);
}

GroupRank ProcessGroup::group_rank(GlobalRank rank) const {
  const Group& group = checked(group_, "group_rank");
  const auto at = std::ranges::find(group.ranks(), rank);
  if (at != group.ranks().end()) return GroupRank{static_cast<int>(at - group.ranks().begin())};
  refuse_query(group, ErrorCode::invalid_argument, "group_rank",
               fmt::format("rank {} of the job is not in it", rank.value));
}

const std::string& ProcessGroup::name() const {
  return checked(group_, "name").name();
}

std::chrono::milliseconds ProcessGroup::timeout() const {
  return checked(group_, "timeout").timeout();
}

std::optional<Backend> ProcessGroup::cpu_backend() const {
  return checked(group_, "cpu_backend").cpu_backend();
}

std::optional<Backend> ProcessGroup::cuda_backend() const {
  return checked(group_, "cuda_backend").cuda_backend();
}

void ProcessGroup::monitored_barrier(const CallOptions& options, bool wait_all_ranks) {
  const CallSite site;
  value_or_raise(checked(group_, "monitored_barrier").monitored_barrier(options, wait_all_ranks),
                 "monitored_barrier", *group_);
}

void ProcessGroup::send(ConstBuffer data, GroupRank to, int tag, const CallOptions& options) {
  transfer_now(group_, send_of(data, to, tag, options), options);
}

void ProcessGroup::recv(Buffer data, GroupRank from, int tag, const CallOptions& options) {
  transfer_now(group_, recv_of(data, from, tag, options), options);
}

GroupRank ProcessGroup::recv_any(Buffer data, int tag, const CallOptions& options) {
  return GroupRank{transfer_now(group_, recv_any_of(data, tag, options), options)};
}

Work ProcessGroup::isend(ConstBuffer data, GroupRank to, int tag, const CallOptions& options) {
  return begin_transfers(group_, {send_of(data, to, tag, options)}, "send", options).front();
}

Work ProcessGroup::irecv(Buffer data, GroupRank from, int tag, const CallOptions& options) {
  return begin_transfers(group_, {recv_of(data, from, tag, options)}, "recv", options).front();
}

Work ProcessGroup::irecv_any(Buffer data, int tag, const CallOptions& options) {
  return begin_transfers(group_, {recv_any_of(data, tag, options)}, "recv", options).front();
}

std::vector<Work> ProcessGroup::batch_isend_irecv(std::span<const P2POp> ops,
                                                  const CallOptions& options) {
  std::vector<Transfer> transfers;
  transfers.reserve(ops.size());
  for (const P2POp& op : ops) {
    const Buffer data(op.data, op.count, op.dtype, op.device);
    transfers.push_back(op.kind == P2POp::Kind::send ? send_of(data, op.peer, op.tag, options)
                                                     : recv_of(data, op.peer, op.tag, options));
  }
  return begin_transfers(group_, std::move(transfers), "batch_isend_irecv", options);
}

void ProcessGroup::broadcast_bytes(std::string& bytes, GroupRank root, const CallOptions& options) {
  const CallSite site;
  value_or_raise(
      worker::broadcast_bytes(checked(group_, "broadcast_bytes"), bytes, root.value, options),
      "broadcast_bytes", *group_);
}

std::vector<std::string> ProcessGroup::all_gather_bytes(std::string_view bytes,
                                                        const CallOptions& options) {
  const CallSite site;
  return value_or_raise(
      worker::all_gather_bytes(checked(group_, "all_gather_bytes"), bytes, options),
      "all_gather_bytes", *group_);
}

SharedMemory ProcessGroup::allocate_shared(size_t bytes, const CallOptions& options) {
  const CallSite site;
  worker::SharedBlock block =
      value_or_raise(checked(group_, "allocate_shared").allocate_shared(bytes, options),
                     "allocate_shared", *group_);
  return {std::move(block.owner), block.data, bytes};
}

ProcessGroup ProcessGroup::split(int color, int key, const GroupOptions& options) {
  const CallSite site;
  return ProcessGroup(
      value_or_raise(checked(group_, "split").split(color, key, options), "split", *group_));
}

void ProcessGroup::abort(std::string_view reason) {
  Group& group = checked(group_, "abort");
  const std::optional<Failure> refused = group.refusal("abort");
  const bool cannot =
      refused && (refused->code == ErrorCode::not_member || refused->code == ErrorCode::forked);
  if (cannot) worker::raise(*refused, "abort", group.name(), group.known_ranks());
  group.abort(reason);
}

std::optional<DistributedError> ProcessGroup::failure() const {
  const Group& group = checked(group_, "failure");
  if (worker::in_forked_child()) worker::raise(*group.refusal("failure"), "failure", group.name());
  const std::optional<Failure> failure = group.failure();
  if (!failure) return std::nullopt;
  return worker::as_error(worker::labelled(*failure, worker::group_title(name())), {}, name(),
                          group.known_ranks());
}

}  // namespace muster
