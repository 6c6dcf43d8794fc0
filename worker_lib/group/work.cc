#include "muster/work.h"

#include <exception>
#include <string>
#include <utility>

#include "worker_lib/fork_guard.h"
#include "worker_lib/raise.h"
#include "worker_lib/work_state.h"

namespace muster {

namespace {

using worker::Outcome;

// Time for an operation to complete before the exception that ends its scope goes on.
constexpr std::chrono::seconds kUnwindingPatience{1};

// Returns the operation; throws if there is none, or if its thread exists only in the parent.
worker::WorkState& live_state(const std::shared_ptr<worker::WorkState>& state, const char* call) {
  if (state == nullptr) [[unlikely]] {
    worker::raise({ErrorCode::invalid_argument,
                   std::string(call) + ": empty Work: get one from an operation that is "
                                       "begun, as all_reduce_async() or isend()"},
                  call, {});
  }
  if (worker::in_forked_child()) [[unlikely]]
    worker::raise(worker::forked_failure(), state->operation, state->group);
  return *state;
}

void throw_failed_work(const worker::WorkState& state, const Outcome<>& outcome) {
  if (!outcome) worker::raise(outcome.error(), state.operation, state.group, state.known_ranks);
  worker::failure_reports().overcome();
}

}  // namespace

Work::Work(std::shared_ptr<worker::WorkState> state) : state_(std::move(state)) {}

Work::~Work() {
  if (state_ == nullptr || std::uncaught_exceptions() <= state_->exceptions_before) return;
  if (worker::in_forked_child()) return;
  if (state_->synchronize(std::chrono::steady_clock::now() + kUnwindingPatience)) return;
  state_->abandon();
  state_->synchronize(Deadline::max());
}

void Work::wait() {
  worker::WorkState& state = live_state(state_, "wait");
  if (const auto outcome = state.wait(Deadline::max())) throw_failed_work(state, *outcome);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  worker::WorkState& state = live_state(state_, "wait");
  const auto outcome = state.wait(deadline_after(std::chrono::steady_clock::now(), timeout));
  if (outcome) throw_failed_work(state, *outcome);
  return outcome.has_value();
}

void Work::synchronize() {
  worker::WorkState& state = live_state(state_, "synchronize");
  if (const auto outcome = state.synchronize(Deadline::max())) throw_failed_work(state, *outcome);
}

bool Work::is_completed() const {
  return live_state(state_, "is_completed").is_complete();
}

std::optional<DistributedError> Work::error() const {
  const worker::WorkState& state = live_state(state_, "error");
  const auto outcome = state.outcome();
  if (!outcome || *outcome) return std::nullopt;
  return worker::as_error(outcome->error(), state.operation, state.group, state.known_ranks);
}

GroupRank Work::source() const {
  return GroupRank{live_state(state_, "source").source()};
}

}  // namespace muster
