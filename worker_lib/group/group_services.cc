// Group operations that are not plain collectives: shared memory and the barrier at the store.

#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/camps.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/shared_time.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/recorder/ring_calls.h"

namespace muster::worker {

// Fails unless all members ask for the same amount: the memory must be symmetric.
Outcome<> Group::agree_on_bytes(size_t bytes, const CallOptions& options) {
  const std::array<int64_t, 1> mine{static_cast<int64_t>(bytes)};
  std::vector<int64_t> all(static_cast<size_t>(members_.size()));
  const Outcome<> told = perform({.kind = OpKind::all_gather,
                                  .in = ConstBuffer(mine),
                                  .out = Buffer(all),
                                  .purpose = CallPurpose::allocate_shared},
                                 options);
  if (!told) return told;
  const Camps camps = camps_of(all);
  if (camps.blamed.empty()) return Done{};
  const Failure failure = mismatch_of(
      all, camps, members_, "{} asks for {} bytes where {} asks for {}; all must ask for the same");
  return tl::unexpected(state_->settle(failure, label("allocate_shared")));
}

Outcome<SharedBlock> Group::allocate_shared(size_t bytes, const CallOptions& options) {
  if (bytes > kSharedBytesMax) {
    return refuse("allocate_shared",
                  fmt::format("{} bytes for each rank; the maximum is {}", bytes, kSharedBytesMax));
  }
  const SharedTime time(*this, options);
  const Outcome<> agreed = agree_on_bytes(bytes, options);
  if (!agreed) return tl::unexpected(agreed.error());
  CollectiveQueue* const queue = queues_[0].load();
  const Deadline deadline = deadline_of(time.left());
  SharedBlock block;
  const Outcome<> done = queue->perform_in_turn(
      "allocate_shared", shared_memory_call(bytes), deadline, [&]() -> Outcome<> {
        Outcome<SharedBlock> made = queue->backend().allocate_shared(bytes, deadline);
        if (!made) return tl::unexpected(std::move(made.error()));
        block = std::move(*made);
        return Done{};
      });
  if (!done) return tl::unexpected(done.error());
  return block;
}

Outcome<> Group::monitored_barrier(const CallOptions& options, bool wait_all_ranks) {
  constexpr const char* kName = "monitored_barrier";
  if (auto refused = refusal(kName)) return tl::unexpected(std::move(*refused));
  if (members_.size() == 1) return Done{};
  const MonitoredBarrier::Call call{
      .members = members_,
      .connect =
          [this](Deadline until) {
            return host_->connect_store(until).map([this](const StoreClient& store) {
              return store.with_prefix("group/" + plan_.id + "/monitored");
            });
          },
      .interrupted = [this]() -> std::optional<Failure> {
        if (state_->usable()) return std::nullopt;
        return state_->refusal();
      },
      .deadline = deadline_of(options),
      .limit = limit_of(options),
      .wait_all_ranks = wait_all_ranks,
      .recorder = recorder_.open(Lane::monitored, ring::GroupState::ready)};
  uint64_t number = 0;
  Outcome<> passed = monitored_.pass(call, number);
  if (passed) return passed;
  return tl::unexpected(
      state_->explain(passed.error(), operation_label(kName, number, plan_.name)));
}

}  // namespace muster::worker
