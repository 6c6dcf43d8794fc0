#include "worker_lib/group/collective_queue.h"

#include <utility>

#include "worker_lib/group/group_work.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/recorder/call_site.h"

namespace muster::worker {

CollectiveQueue::CollectiveQueue(std::unique_ptr<GroupBackend> backend, size_t index,
                                 std::shared_ptr<GroupState> state, const GroupShutdown& departures,
                                 const LaneRecorder& recorder)
    : index_(index),
      state_(std::move(state)),
      departures_(departures),
      backend_(std::move(backend)),
      is_asynchronous_(backend_->is_asynchronous()),
      recorder_(recorder) {}

GroupQueue& CollectiveQueue::queue() {
  std::call_once(queue_once_, [this] {
    queue_owner_ = std::make_unique<GroupQueue>(state_, lane());
    queue_.store(queue_owner_.get(), std::memory_order_release);
  });
  return *queue_owner_;
}

// Returns false if another operation has the turn or waits for it; then this one must be queued.
bool CollectiveQueue::try_take_turn(std::unique_lock<std::mutex>& turn) {
  const auto queue_is_idle = [this] {
    const GroupQueue* const queue = queue_.load(std::memory_order_acquire);
    return queue == nullptr || queue->idle();
  };
  if (!queue_is_idle() || !turn.try_lock()) return false;
  if (queue_is_idle()) return true;
  turn.unlock();
  return false;
}

// Numbers one operation and performs it. `enter` gets the number and records the call. REQUIRES:
// the turn is held. The number is published before the departures are read, and a departure before
// the numbers are read, so at least one side sees the other.
template <typename Enter, typename Act>
Outcome<> CollectiveQueue::take_turn(const char* name, const Enter& enter, const Act& act,
                                     std::chrono::milliseconds limit, bool is_launched) {
  const uint64_t mine = begun_.load(std::memory_order_relaxed) + 1;
  const auto label = [&] { return operation_label(name, mine, state_->group_name()); };
  if (!state_->usable()) {
    return tl::unexpected(labelled(state_->refusal(), label()));
  }
  last_.store(name, std::memory_order_relaxed);
  begun_.store(mine);
  std::optional<Failure> missing = departures_.missing_in(index_, mine);
  const CallRecord record = enter(mine);
  Outcome<> outcome = missing ? Outcome<>(tl::unexpected(std::move(*missing))) : Outcome<>(act());
  if (outcome) [[likely]] {
    ended_.store(mine, std::memory_order_release);
    if (is_launched) {
      record.launched();
      if (record) in_flight_.push_back(record);
    } else {
      is_asynchronous_ ? record.ended(true) : record.completed();
    }
    return outcome;
  }
  // In flight until the ranks to blame are known, since other ranks may query it meanwhile.
  Failure failure = state_->settle(outcome.error(), label(), {lane(), mine, false, false, limit});
  if (failure.code == ErrorCode::invalid_argument) {
    begun_.store(mine - 1);  // Nothing was sent.
    record.withdrawn();
  } else {
    ended_.store(mine);
    is_asynchronous_ ? record.ended(false) : record.failed();
  }
  return tl::unexpected(std::move(failure));
}

Outcome<> CollectiveQueue::run(Operation& operation, const char* name, Deadline deadline,
                               bool is_awaited) {
  return take_turn(
      name,
      [&](uint64_t number) {
        operation.sequence = number;
        return recorder_.called(operation, is_awaited);
      },
      [&] { return backend_->run(operation, deadline); }, operation.limit,
      is_asynchronous_ && !is_awaited);
}

// Records earlier calls that are complete: nothing else does if no thread waits for them.
void CollectiveQueue::record_completed() {
  if (in_flight_.empty()) return;
  const uint64_t first = backend_->first_under_way().value_or(UINT64_MAX);
  for (; !in_flight_.empty() && in_flight_.front().number() < first; in_flight_.pop_front())
    in_flight_.front().ended(true);
}

Outcome<std::shared_ptr<WorkState>> CollectiveQueue::start(Operation& operation, const char* name,
                                                           Deadline deadline, CallRecord& record) {
  std::shared_ptr<WorkState> state;
  record_completed();
  const Outcome<> outcome = take_turn(
      name,
      [&](uint64_t number) {
        operation.sequence = number;
        return record = recorder_.called(operation, false);
      },
      [&]() -> Outcome<> {
        Outcome<std::shared_ptr<WorkState>> started = backend_->start(operation, deadline);
        if (!started) return tl::unexpected(std::move(started.error()));
        state = std::move(*started);
        return Done{};
      },
      operation.limit, true);
  if (!outcome) return tl::unexpected(outcome.error());
  return state;
}

Outcome<> CollectiveQueue::perform(Operation& operation, const char* name, Deadline deadline) {
  if (is_asynchronous_) {
    const std::lock_guard turn(turn_);
    operation.stream_waits = true;
    record_completed();
    return run(operation, name, deadline, operation.kind == OpKind::barrier);
  }
  std::unique_lock turn(turn_, std::defer_lock);
  if (try_take_turn(turn)) [[likely]] {
    return run(operation, name, deadline, true);
  }
  const auto work = queue().push(
      [this, &operation, name, deadline] {
        const std::lock_guard lock(turn_);
        return run(operation, name, deadline, true);
      },
      name, deadline);
  return work->wait(Deadline::max()).value_or(Done{});
}

Outcome<std::shared_ptr<WorkState>> CollectiveQueue::begin(Operation operation, const char* name,
                                                           Deadline deadline) {
  if (is_asynchronous_) {
    const std::lock_guard turn(turn_);
    CallRecord record;
    Outcome<std::shared_ptr<WorkState>> state = start(operation, name, deadline, record);
    if (!state) return state;
    return observe(std::move(*state), state_, name,
                   operation_label(name, operation.sequence, state_->group_name()), record,
                   {lane(), operation.sequence, false, false, operation.limit});
  }
  return queue().push(
      [this, operation = std::move(operation), name, deadline]() mutable {
        const std::lock_guard lock(turn_);
        return run(operation, name, deadline, false);
      },
      name, deadline);
}

Outcome<> CollectiveQueue::perform_in_turn(const char* name, const ring::Call& call,
                                           Deadline deadline, std::function<Outcome<>()> act) {
  const auto enter = [this, call, site = CallSite::current()](uint64_t number) {
    return recorder_.called(number, call, site);
  };
  std::unique_lock turn(turn_, std::defer_lock);
  if (try_take_turn(turn)) return take_turn(name, enter, act);
  const auto work = queue().push(
      [this, enter, act = std::move(act), name] {
        const std::lock_guard lock(turn_);
        return take_turn(name, enter, act);
      },
      name, deadline);
  return work->wait(Deadline::max()).value_or(Done{});
}

LaneProgress CollectiveQueue::progress() const {
  LaneProgress progress;
  progress.begun = begun_.load();
  progress.ended = ended_.load();
  progress.last = last_.load(std::memory_order_relaxed);
  if (const auto first = backend_->first_under_way()) progress.ended = *first - 1;
  progress.calls = backend_->last_calls();
  if (!progress.is_under_way()) return progress;
  const GroupQueue* const queue = queue_.load(std::memory_order_acquire);
  progress.is_held = queue == nullptr || !queue->is_performing() || queue->is_awaited();
  progress.awaited = backend_->awaited();
  return progress;
}

bool CollectiveQueue::idle() {
  const GroupQueue* const queue = queue_.load(std::memory_order_acquire);
  if (queue != nullptr && !queue->idle()) return false;
  const std::unique_lock turn(turn_, std::try_to_lock);
  return turn.owns_lock() && backend_->is_idle();
}

void CollectiveQueue::wait_idle() {
  if (GroupQueue* const queue = queue_.load(std::memory_order_acquire)) queue->wait_idle();
  // A call that has the turn may not have reached the backend yet.
  const std::lock_guard turn(turn_);
  backend_->wait_idle();
}

}  // namespace muster::worker
