#include "worker_lib/group/group_queue.h"

#include <algorithm>
#include <utility>

#include "worker_lib/group_labels.h"
#include "worker_lib/quiet_thread.h"

namespace muster::worker {

namespace {

const std::string kNoTimeLeft = "its timeout expired while earlier operations were in progress";
const std::string kMoreTime = "; give it a longer timeout, or wait for those first";

Failure late_in_line() {
  Failure failure{ErrorCode::timeout, kNoTimeLeft + kMoreTime};
  failure.is_suspicion = true;
  return failure;
}

// Adds what blocks the earlier operations, if the search found it.
Failure late_because(Failure found) {
  if (found.message != kNoTimeLeft + kMoreTime) found.message = kNoTimeLeft + ": " + found.message;
  return found;
}

}  // namespace

QueuedWork::QueuedWork(std::shared_ptr<GroupState> state, std::string label, Deadline deadline,
                       Lane lane)
    : state_(std::move(state)), label_(std::move(label)), deadline_(deadline), lane_(lane) {}

// Fails the group at the deadline, which ends the operations in front; then this one's turn comes.
std::optional<Outcome<>> QueuedWork::wait(Deadline until) {
  const Waiter waiter(*this);
  std::unique_lock lock(mutex_);
  const auto settled = [this] { return outcome_.has_value() || begun_; };
  if (!wait_on(changed_, lock, std::min(until, deadline_), settled) && deadline_ <= until) {
    lock.unlock();
    const Failure late = late_because(state_->name_stragglers(late_in_line(), {.lane = lane_}));
    lock.lock();
    // Its turn may have come meanwhile.
    if (!settled()) fail(lock, late);
  }
  wait_on(changed_, lock, until, [this] { return outcome_.has_value(); });
  return outcome_;
}

// Fails the group with this time-out; complete() uses it too, if the turn comes after all.
void QueuedWork::fail(std::unique_lock<std::mutex>& lock, const Failure& late) {
  lock.unlock();
  Failure failure = state_->settle(late, label_);
  lock.lock();
  if (outcome_ && !*outcome_) outcome_ = tl::unexpected(failure);
  expired_ = std::move(failure);
}

std::optional<Outcome<>> QueuedWork::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void QueuedWork::begin() {
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
  }
  changed_.notify_all();
}

void QueuedWork::complete(Outcome<> outcome) {
  {
    const std::lock_guard lock(mutex_);
    outcome_ = expired_ && !outcome ? tl::unexpected(*expired_) : std::move(outcome);
  }
  changed_.notify_all();
}

GroupQueue::~GroupQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<QueuedWork> GroupQueue::push(Task task, const char* operation, Deadline deadline) {
  auto work = std::make_shared<QueuedWork>(
      state_, operation_label(operation, 0, state_->group_name()), deadline, lane_);
  work->operation = operation;
  work->group = state_->group_name();
  work->known_ranks = state_->known_ranks();
  const Outcome<> started = [&]() -> Outcome<> {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      Outcome<std::thread> thread = start_quiet_thread([this] { work_off(); });
      if (!thread) return tl::unexpected(std::move(thread.error()));
      thread_ = std::move(*thread);
    }
    pending_.fetch_add(1, std::memory_order_release);
    entries_.push_back({std::move(task), work});
    return Done{};
  }();
  if (started) {
    changed_.notify_one();
  } else {  // Also reports it: this rank takes no part.
    work->complete(tl::unexpected(state_->settle(started.error(), work->label_)));
  }
  return work;
}

void GroupQueue::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return idle(); });
}

bool GroupQueue::is_performing() const {
  const std::lock_guard lock(mutex_);
  return performed_ != nullptr;
}

bool GroupQueue::is_awaited() const {
  const std::lock_guard lock(mutex_);
  return (performed_ != nullptr && performed_->is_awaited()) ||
         std::ranges::any_of(entries_, [](const Entry& entry) { return entry.work->is_awaited(); });
}

void GroupQueue::work_off() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !entries_.empty(); });
    if (entries_.empty()) return;
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    performed_ = entry.work;
    lock.unlock();
    entry.work->begin();
    Outcome<> outcome = entry.task();
    entry.task = {};
    // Must precede complete(): the waiting thread may then perform its next call itself, if idle().
    pending_.fetch_sub(1, std::memory_order_release);
    entry.work->complete(std::move(outcome));
    entry = {};
    lock.lock();
    performed_.reset();
    if (entries_.empty()) idle_.notify_all();
  }
}

}  // namespace muster::worker
