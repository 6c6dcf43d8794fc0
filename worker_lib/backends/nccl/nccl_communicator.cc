#include "worker_lib/backends/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <fmt/format.h>

#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kJoinPollMost{5};
constexpr milliseconds kLetGoPatience{10'000};
// How long end() waits for a thread to leave NCCL by itself. Most calls take microseconds.
constexpr milliseconds kCallerPatience{250};
constexpr milliseconds kRevokedCallerPatience{2000};
// Longer without a revoke: the thread may be opening connections, and return by itself.
constexpr milliseconds kUncalledCallerPatience{4000};

// The two communicators during set-up. NCCL's own thread writes to them, so they outlive a caller
// that gives up.
struct Joining {
  NcclHandle meeting = nullptr;
  NcclHandle made = nullptr;
};

NcclHandle read_handle(NcclHandle& handle) {
  return std::atomic_ref<NcclHandle>(handle).load(std::memory_order_acquire);
}

NcclConfig config_of(bool blocking) {
  NcclConfig config;
  config.blocking = blocking ? 1 : 0;
  config.split_share = 0;
  return config;
}

// Waits until the call begun on the meeting communicator is complete and has set `made`. Polls the
// state of that communicator, since ncclCommSplit returns ncclSuccess long before (in all versions
// from 2.18.3 to 2.30.7; NCCL's own example polls the parent, too).
Outcome<> wait_until_done(const NcclCommunicator::Options& options, Joining& joining,
                          NcclHandle& made, NcclResult begun, const char* what) {
  const NcclApi& nccl = options.nccl;
  NcclResult result = begun == NcclResult::success ? NcclResult::in_progress : begun;
  microseconds pause{50};
  while (true) {
    if (result != NcclResult::success && result != NcclResult::in_progress)
      return failed(ErrorCode::backend,
                    fmt::format("{} failed: {}", what, nccl.describe(result, joining.meeting)));
    if (options.interrupted) {
      if (const std::optional<Failure> reason = options.interrupted())
        return tl::unexpected(*reason);
    }
    if (result == NcclResult::success && read_handle(made) != nullptr) return Done{};
    if (std::chrono::steady_clock::now() >= options.deadline)
      return failed(
          ErrorCode::timeout,
          fmt::format("{} did not finish in time; NCCL does not say which rank it waits for: check "
                      "the messages of the other ranks, and set NCCL_DEBUG=INFO",
                      what));
    std::this_thread::sleep_for(pause);
    pause = std::min<microseconds>(pause * 2, kJoinPollMost);
    const NcclResult asked = nccl.comm_get_async_error(read_handle(joining.meeting), &result);
    if (asked != NcclResult::success) result = asked;
  }
}

Outcome<> meet_and_split(const NcclCommunicator::Options& options, Joining& joining) {
  const NcclApi& nccl = options.nccl;
  NcclConfig meeting = config_of(false);
  NcclResult begun = nccl.comm_init_rank_config(&joining.meeting, options.ranks, options.id,
                                                options.rank, &meeting);
  if (Outcome<> met =
          wait_until_done(options, joining, joining.meeting, begun, "ncclCommInitRankConfig");
      !met)
    return met;
  NcclConfig made = config_of(true);
  begun = nccl.comm_split(joining.meeting, 0, options.rank, &joining.made, &made);
  return wait_until_done(options, joining, joining.made, begun, "ncclCommSplit");
}

// Releases the meeting communicator, on a thread that NCCL may block. After success that is no
// abort, which could take the other communicator along: the two share an abort flag if
// NCCL_COMM_SPLIT_SHARE_RESOURCES=1, which overrides our configuration.
void let_go(const NcclCommunicator::Options& options, const std::shared_ptr<Joining>& joining,
            bool is_made) {
  auto gone = std::make_shared<std::promise<void>>();
  start_or_run([&nccl = options.nccl, gpu = options.gpu, joining, gone, is_made] {
    const Gpu::Current here(*gpu);
    if (const NcclHandle meeting = read_handle(joining->meeting))
      is_made ? nccl.comm_destroy(meeting) : nccl.comm_abort(meeting);
    gone->set_value();
  });
  if (is_made) gone->get_future().wait_for(kLetGoPatience);
}

}  // namespace

Outcome<std::unique_ptr<NcclCommunicator>> NcclCommunicator::join(const Options& options) {
  const Gpu::Current current(*options.gpu);
  auto joining = std::make_shared<Joining>();
  const Outcome<> outcome = meet_and_split(options, *joining);
  let_go(options, joining, outcome.has_value());
  if (!outcome) return tl::unexpected(outcome.error());
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(options.nccl, options.gpu));
  made->handle_ = read_handle(joining->made);
  return made;
}

Outcome<> NcclCommunicator::check() const {
  NcclResult state = NcclResult::success;
  const NcclResult asked = nccl_.comm_get_async_error(handle_, &state);
  const NcclResult result = asked == NcclResult::success ? state : asked;
  if (result == NcclResult::success || result == NcclResult::in_progress) return Done{};
  return failed(ErrorCode::backend,
                fmt::format("NCCL failed: {}", nccl_.describe(result, handle_)));
}

void NcclCommunicator::end(bool orderly, const std::function<void()>& on_stuck) {
  const Gpu::Current current(*gpu_);
  std::unique_lock lock(mutex_, std::defer_lock);
  if (orderly) {
    lock.lock();
    nccl_.comm_destroy(handle_);
    return;
  }
  // Revokes even without the lock: a thread stuck in NCCL holds it.
  bool is_free = lock.try_lock_for(kCallerPatience);
  NcclResult revoked = NcclResult::invalid_usage;
  if (nccl_.comm_revoke != nullptr) revoked = nccl_.comm_revoke(handle_, 0);
  const bool is_revoked = revoked == NcclResult::success || revoked == NcclResult::in_progress;
  if (!is_free)
    is_free = lock.try_lock_for(is_revoked ? kRevokedCallerPatience : kUncalledCallerPatience);
  if (!is_free) {
    on_stuck();
    lock.lock();
  }
  nccl_.comm_abort(handle_);
}

}  // namespace muster::worker
