#include "worker_lib/group/group_work.h"

#include <mutex>
#include <optional>
#include <utility>

namespace muster::worker {

namespace {

class ObservedWork final : public WorkState {
 public:
  ObservedWork(std::shared_ptr<WorkState> inner, std::shared_ptr<GroupState> state,
               std::string label, const GroupState::Call& call)
      : inner_(std::move(inner)), state_(std::move(state)), label_(std::move(label)), call_(call) {}

  // The Waiter lives until the ranks to blame are known.
  std::optional<Outcome<>> wait(Deadline until) override {
    const Waiter waiter(*inner_);
    return seen(inner_->wait(until));
  }
  std::optional<Outcome<>> synchronize(Deadline until) override {
    const Waiter waiter(*inner_);
    return seen(inner_->synchronize(until));
  }
  std::optional<Outcome<>> outcome() const override { return seen(inner_->outcome()); }
  bool is_complete() const override { return inner_->is_complete(); }
  int source() const override { return inner_->source(); }

 private:
  // Settled once, so that all callers get the same answer.
  std::optional<Outcome<>> seen(std::optional<Outcome<>> outcome) const {
    if (!outcome || *outcome) return outcome;
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = state_->settle(outcome->error(), label_, call_);
    return Outcome<>(tl::unexpected(*failure_));
  }

  const std::shared_ptr<WorkState> inner_;
  const std::shared_ptr<GroupState> state_;
  const std::string label_;
  const GroupState::Call call_;
  mutable std::mutex mutex_;
  mutable std::optional<Failure> failure_;
};

}  // namespace

std::shared_ptr<WorkState> observe(std::shared_ptr<WorkState> inner,
                                   std::shared_ptr<GroupState> state, std::string operation,
                                   std::string label, const GroupState::Call& call) {
  std::string group = state->group_name();
  auto work =
      std::make_shared<ObservedWork>(std::move(inner), std::move(state), std::move(label), call);
  work->operation = std::move(operation);
  work->group = std::move(group);
  return work;
}

}  // namespace muster::worker
