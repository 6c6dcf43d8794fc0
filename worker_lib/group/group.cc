#include "worker_lib/group/group.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group_work.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/recorder/call_site.h"

namespace muster::worker {

namespace {

GroupState::Call message_call(const Transfer& transfer, std::chrono::milliseconds limit) {
  return {.lane = transfer.device.kind == Device::Kind::cpu ? Lane::host : Lane::device,
          .number = 0,
          .is_message = true,
          .from_anybody = transfer.peer < 0,
          .limit = limit};
}

constexpr size_t queue_index(const Device& device) {
  return device.kind == Device::Kind::cpu ? 0 : 1;
}

// The kernel's clock at its last tick, at most 10 ms ago: a quarter of the cost of the exact clock,
// which takes as long as the rest of a call that waits for no peer.
Deadline recent_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Deadline(std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec});
}

Deadline call_deadline(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kTick{10};
  const bool coarse = timeout >= kTick * 100;
  return deadline_after(coarse ? recent_now() + kTick : std::chrono::steady_clock::now(), timeout);
}

}  // namespace

Group::Group(std::shared_ptr<GroupHost> host, GroupPlan plan, Members members)
    : host_(std::move(host)),
      plan_(std::move(plan)),
      members_(std::move(members)),
      recorder_(host_->recorder, plan_, members_),
      watch_(host_->watch_now()),
      state_(std::make_shared<GroupState>(plan_.name, host_->world.self().rank, !watch_.expired(),
                                          worker::known_ranks(host_->world))),
      departures_(members_),
      transfers_(members_.size()),
      agreements_(*host_, plan_) {
  state_->attach(
      [this](const Failure& failure, GroupState::Source source) { on_failed(failure, source); });
  state_->name_stragglers_with(asker());
  state_->record_with(recorder_.open(Lane::host));
}

Group::~Group() {
  unsubscribe();
  state_->attach({});
  recorder_.end(ring::GroupState::closed);
}

void Group::Retire::operator()(Group* group) const {
  // The threads to join exist only in the parent.
  if (in_forked_child()) return;
  std::unique_ptr<Group> owned(group);
  const std::shared_ptr<GroupHost> host = group->host_;
  if (group->is_member()) host->retire(std::move(owned));
}

std::optional<Backend> Group::backend(bool on_gpu) const {
  if (on_gpu) {
    const bool is_usable = check_device(Device::cuda(host_->cuda_device), false).empty();
    return is_usable ? std::optional(Backend::nccl) : std::nullopt;
  }
  if (plan_.backend == Backend::nccl) return std::nullopt;
  return plan_.backend == Backend::gloo ? Backend::gloo : Backend::cpu;
}

Deadline Group::deadline_of(const CallOptions& options) const {
  return call_deadline(limit_of(options));
}

std::string Group::label(std::string_view operation) const {
  return operation_label(operation, 0, plan_.name);
}

tl::unexpected<Failure> Group::refuse(std::string_view operation, std::string why) const {
  return failed(ErrorCode::invalid_argument, label(operation) + ": " + why);
}

std::optional<Failure> Group::refusal(const char* operation) const {
  if (in_forked_child()) [[unlikely]]
    return labelled(forked_failure(), label(operation));
  if (!is_member()) [[unlikely]] {
    const Peer& self = host_->world.self();
    return Failure{ErrorCode::not_member,
                   fmt::format("{}: {} is not a member of it; only members may call its operations "
                               "(see is_member())",
                               label(operation), describe(self)),
                   {}};
  }
  if (!state_->usable()) [[unlikely]]
    return labelled(state_->refusal(), label(operation));
  return std::nullopt;
}

std::string Group::check_device(const Device& device, bool is_service) const {
  if (device.kind == Device::Kind::cpu) {
    if (is_service || plan_.backend != Backend::nccl) return {};
    return "the group was made with the backend nccl, which works on GPU memory only; make one "
           "with cpu or automatic for host memory";
  }
  if (plan_.backend != Backend::nccl && plan_.backend != Backend::automatic) {
    return fmt::format(
        "the group was made with the backend {}, which works on host memory only; "
        "make one with nccl or automatic for GPU memory",
        name_of(plan_.backend));
  }
  if (device.index != host_->cuda_device) {
    return fmt::format(
        "memory on cuda:{}, and this rank's device is cuda:{}; see "
        "InitOptions::device",
        device.index, host_->cuda_device);
  }
  if (queues_[queue_index(device)].load() != nullptr) return {};
  std::string why = "this build of muster has no NCCL";
  if (host_->makers.nccl && (!host_->makers.nccl_available || host_->makers.nccl_available(&why)))
    return {};
  return "GPU memory cannot be used: " + why;
}

bool Group::device_is_sound(const Device& device, bool is_service, std::string& why) const {
  if (device.kind == Device::Kind::cpu && plan_.backend != Backend::nccl) [[likely]]
    return true;
  why = check_device(device, is_service);
  return why.empty();
}

Outcome<CollectiveQueue*> Group::queue_of(const Device& device, const char* operation,
                                          const CallOptions& options) {
  const size_t index = queue_index(device);
  CollectiveQueue* const queue = queues_[index].load(std::memory_order_acquire);
  if (queue != nullptr) [[likely]]
    return queue;
  return make_queue(index, operation, deadline_of(options), limit_of(options));
}

// Returns false and sets `failure` if the call is refused.
bool Group::prepare(const CollectiveCall& call, const CallOptions& options, Prepared& prepared,
                    Failure& failure) {
  Operation& operation = prepared.operation;
  const CallPurpose outer = current_purpose();
  operation.purpose = outer == CallPurpose::itself ? call.purpose : outer;
  const char* const name =
      outer == CallPurpose::itself ? name_of(call) : name_of(operation.purpose);
  prepared.name = name;
  if (std::optional<Failure> why = refusal(name)) [[unlikely]] {
    failure = std::move(*why);
    return false;
  }
  std::string why;
  const bool sound = check_collective(call, shape(), operation, why);
  Device& device = operation.device;
  // A call without buffers may use any backend of the group.
  const bool anywhere =
      call.kind == OpKind::barrier || (operation.in == nullptr && operation.out == nullptr);
  if (plan_.backend == Backend::nccl && anywhere && device == Device::cpu() && !call.is_service)
    device = Device::cuda(host_->cuda_device);
  if (!sound || !device_is_sound(device, call.is_service, why)) [[unlikely]] {
    failure = refuse(name, std::move(why)).value();
    return false;
  }
  operation.stream = options.stream;
  operation.limit = limit_of(options);
  operation.site = CallSite::current();
  prepared.deadline = deadline_of(options);
  prepared.queue = queues_[queue_index(device)].load(std::memory_order_acquire);
  if (prepared.queue != nullptr) [[likely]]
    return true;
  Outcome<CollectiveQueue*> made =
      make_queue(queue_index(device), name, prepared.deadline, operation.limit);
  if (made) {
    prepared.queue = *made;
  } else {
    failure = std::move(made.error());
  }
  return made.has_value();
}

Outcome<> Group::perform(const CollectiveCall& call, const CallOptions& options) {
  Prepared prepared;
  Failure failure;
  if (!prepare(call, options, prepared, failure)) return tl::unexpected(std::move(failure));
  return prepared.queue->perform(prepared.operation, prepared.name, prepared.deadline);
}

Outcome<std::shared_ptr<WorkState>> Group::begin(const CollectiveCall& call,
                                                 const CallOptions& options) {
  Prepared prepared;
  Failure failure;
  if (!prepare(call, options, prepared, failure)) return tl::unexpected(std::move(failure));
  return prepared.queue->begin(std::move(prepared.operation), prepared.name, prepared.deadline);
}

Outcome<CollectiveQueue*> Group::prepare_transfer(const Transfer& transfer,
                                                  const CallOptions& options) {
  const char* const name = name_of(transfer.kind);
  if (std::optional<Failure> why = refusal(name)) return tl::unexpected(std::move(*why));
  std::string why;
  if (!check_transfer(transfer, shape(), why) || !device_is_sound(transfer.device, false, why))
    return refuse(name, std::move(why));
  Outcome<CollectiveQueue*> queue = queue_of(transfer.device, name, options);
  if (!queue) return queue;
  why = (*queue)->backend().refuses(transfer);
  if (!why.empty()) return refuse(name, std::move(why));
  if (transfer.kind == OpKind::send && departures_.has_left(transfer.peer))
    return tl::unexpected(transfer_failed(transfer, departures_.failure_of(transfer.peer), {}));
  return queue;
}

// "recv from rank 2 (node7, pid 4711) of group world"
std::string Group::transfer_label(const Transfer& transfer) const {
  std::string name = name_of(transfer.kind);
  if (transfer.peer >= 0) {
    name += (transfer.kind == OpKind::send ? " to " : " from ") + describe(members_[transfer.peer]);
  } else {
    name += " from any rank";
  }
  if (transfer.tag != 0) name += fmt::format(" with tag {}", transfer.tag);
  return label(name);
}

Failure Group::transfer_failed(const Transfer& transfer, const Failure& own,
                               std::chrono::milliseconds limit) {
  return state_->settle(own, transfer_label(transfer), message_call(transfer, limit));
}

Outcome<int> Group::transfer(const Transfer& transfer, const CallOptions& options) {
  const Outcome<CollectiveQueue*> queue = prepare_transfer(transfer, options);
  if (!queue) return tl::unexpected(queue.error());
  Deadline deadline = deadline_of(options);
  const GroupTransfers::Inside inside(transfers_, transfer.kind, transfer.peer);
  // Must be read after `inside` is visible: if the peer leaves later, on_left() ends this transfer.
  const bool gone = departures_.has_left(transfer.peer);
  if (gone) [[unlikely]] {
    deadline = std::min(deadline, call_deadline(kLastMessage));
  } else if (departures_.is_leaving(transfer.peer)) [[unlikely]] {
    end_waits_later(transfer.peer);
  }
  Transfer timed = transfer;
  timed.limit = limit_of(options);
  // GPU transfers are only put on a stream; completion is not observed.
  const bool is_awaited = transfer.device.kind == Device::Kind::cpu;
  const CallRecord record = (*queue)->recorder().called(timed, is_awaited);
  Outcome<int> sender = (*queue)->backend().transfer(timed, deadline);
  if (sender) [[likely]] {
    if (is_awaited) record.completed();
    return sender;
  }
  record.failed();
  const bool over = gone && sender.error().code == ErrorCode::timeout;
  return tl::unexpected(transfer_failed(
      transfer, over ? departures_.failure_of(transfer.peer) : sender.error(), timed.limit));
}

Outcome<std::vector<std::shared_ptr<WorkState>>> Group::begin(std::vector<Transfer> transfers,
                                                              const CallOptions& options) {
  std::array<std::vector<size_t>, kCollectiveQueues> of_queue;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Outcome<CollectiveQueue*> queue = prepare_transfer(transfers[i], options);
    if (!queue) return tl::unexpected(queue.error());
    of_queue[queue_index(transfers[i].device)].push_back(i);
  }
  std::vector<std::shared_ptr<WorkState>> works(transfers.size());
  const Deadline deadline = deadline_of(options);
  for (size_t c = 0; c < kCollectiveQueues; ++c) {
    if (of_queue[c].empty()) continue;
    CollectiveQueue& queue = *queues_[c].load();
    std::vector<Transfer> together;
    std::vector<CallRecord> records;
    for (const size_t i : of_queue[c]) {
      together.push_back(transfers[i]);
      together.back().limit = limit_of(options);
      records.push_back(queue.recorder().called(transfers[i], false));
    }
    auto states = queue.backend().begin(together, deadline);
    if (!states) {
      std::ranges::for_each(records, &CallRecord::failed);
      return tl::unexpected(transfer_failed(together.front(), states.error(), limit_of(options)));
    }
    for (size_t k = 0; k < together.size(); ++k)
      works[of_queue[c][k]] = adopt(together[k], (*states)[k], records[k]);
  }
  return works;
}

std::shared_ptr<WorkState> Group::adopt(const Transfer& transfer, std::shared_ptr<WorkState> state,
                                        const CallRecord& record) {
  transfers_.add(transfer, state);
  if (departures_.has_left(transfer.peer) || departures_.is_leaving(transfer.peer))
    end_waits_later(transfer.peer);
  return observe(std::move(state), state_, name_of(transfer.kind), transfer_label(transfer), record,
                 message_call(transfer, transfer.limit));
}

}  // namespace muster::worker
