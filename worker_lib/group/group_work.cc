#include "worker_lib/group/group_work.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

namespace muster::worker {

namespace {

class ObservedWork final : public WorkState {
 public:
  ObservedWork(std::shared_ptr<WorkState> inner, std::shared_ptr<GroupState> state,
               std::string label, const CallRecord& record, const GroupState::Call& call)
      : inner_(std::move(inner)),
        state_(std::move(state)),
        label_(std::move(label)),
        call_(call),
        record_(record),
        is_recorded_(!record) {}

  // The Waiter must live until the ranks to blame are known.
  std::optional<Outcome<>> wait(Deadline until) override {
    const Waiter waiter(*inner_);
    return seen(inner_->wait(until));
  }
  std::optional<Outcome<>> synchronize(Deadline until) override {
    const Waiter waiter(*inner_);
    return seen(inner_->synchronize(until));
  }
  std::optional<Outcome<>> outcome() const override { return seen(inner_->outcome()); }
  bool is_complete() const override {
    const bool is_complete = inner_->is_complete();
    if (is_complete) record_end();
    return is_complete;
  }
  int source() const override { return inner_->source(); }
  void abandon() override { state_->abandon(operation); }

 private:
  // Settles once, so that all callers get the same answer.
  std::optional<Outcome<>> seen(std::optional<Outcome<>> outcome) const {
    if (outcome) record_end();
    if (!outcome || *outcome) return outcome;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = state_->settle(outcome->error(), label_, call_);
    return Outcome<>(tl::unexpected(*failure_));
  }

  // Asks outcome(): wait() for GPU work only makes its stream wait and does not imply completion.
  void record_end() const {
    if (is_recorded_.load(std::memory_order_relaxed)) return;
    const std::optional<Outcome<>> outcome = inner_->outcome();
    if (!outcome || is_recorded_.exchange(true)) return;
    record_.ended(outcome->has_value());
  }

  const std::shared_ptr<WorkState> inner_;
  const std::shared_ptr<GroupState> state_;
  const std::string label_;
  const GroupState::Call call_;
  const CallRecord record_;
  mutable std::atomic<bool> is_recorded_;
  mutable std::mutex mutex_;
  mutable std::optional<Failure> failure_;
};

}  // namespace

std::shared_ptr<WorkState> observe(std::shared_ptr<WorkState> inner,
                                   std::shared_ptr<GroupState> state, std::string operation,
                                   std::string label, const CallRecord& record,
                                   const GroupState::Call& call) {
  std::string group = state->group_name();
  KnownRanks known_ranks = state->known_ranks();
  auto work = std::make_shared<ObservedWork>(std::move(inner), std::move(state), std::move(label),
                                             record, call);
  work->operation = std::move(operation);
  work->group = std::move(group);
  work->known_ranks = std::move(known_ranks);
  return work;
}

}  // namespace muster::worker
