#include "muster/work.h"

#include <utility>

#include "rendezvous/base/error.h"
#include "worker_lib/fork_guard.h"
#include "worker_lib/group/work_state.h"
#include "worker_lib/raise.h"

namespace muster {

namespace {

using worker::Deadline;
using worker::Outcome;

Deadline work_deadline(std::chrono::milliseconds timeout) {
  const auto now = std::chrono::steady_clock::now();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::max() - now);
  return timeout >= left ? Deadline::max() : now + timeout;
}

// The thread that would complete it is in the parent.
void refuse_forked(const worker::WorkState& state) {
  if (!worker::in_forked_child()) [[likely]]
    return;
  worker::raise(worker::forked_failure(), state.operation, state.group);
}

void throw_failed_work(const worker::WorkState& state, const Outcome<>& outcome) {
  if (!outcome) worker::raise(outcome.error(), state.operation, state.group);
}

}  // namespace

Work::Work(std::shared_ptr<worker::WorkState> state) : state_(std::move(state)) {}

void Work::wait() {
  CHECK(valid());
  refuse_forked(*state_);
  if (const auto outcome = state_->wait(Deadline::max())) throw_failed_work(*state_, *outcome);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  CHECK(valid());
  refuse_forked(*state_);
  const auto outcome = state_->wait(work_deadline(timeout));
  if (outcome) throw_failed_work(*state_, *outcome);
  return outcome.has_value();
}

void Work::synchronize() {
  CHECK(valid());
  refuse_forked(*state_);
  if (const auto outcome = state_->synchronize(Deadline::max()))
    throw_failed_work(*state_, *outcome);
}

bool Work::is_completed() const noexcept {
  CHECK(valid());
  return !worker::in_forked_child() && state_->outcome().has_value();
}

std::optional<DistributedError> Work::error() const {
  CHECK(valid());
  refuse_forked(*state_);
  const auto outcome = state_->outcome();
  if (!outcome || *outcome) return std::nullopt;
  return worker::as_error(outcome->error(), state_->operation, state_->group);
}

GroupRank Work::source() const {
  CHECK(valid());
  refuse_forked(*state_);
  return GroupRank{state_->source()};
}

}  // namespace muster
