// Two moments in which the ranks of a training job have to agree: who prepares something first, and
// at which step all of them stop.
//
//   #include <muster/distributed.h>
//
//   muster::init_process_group({.on_sigterm = muster::StopPolicy::agree});
//   // One rank of each node downloads and unpacks; the others find it done.
//   Dataset data = muster::local_zero_first([] { return open_or_download("/tmp/digits"); });
//   for (int step = 0; !muster::should_stop(); ++step) {
//     train(step, data);
//   }
//   // SIGTERM came to one of them: all ranks are here, at the same step.
//   muster::save_checkpoint("last.bin", parameters());
//
// All of these are collective: every member calls them, in the same order as all its operations.
// They throw DistributedErrors as the operations of a group do, and not_initialized. They are
// compared as themselves: should_stop() on one rank and all_reduce() on another is a mismatch, and
// never taken for one operation, although both are made of the same.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

namespace detail {

enum class FirstRanks : uint8_t { zero, local_zero };

MUSTER_API void take_turns(FirstRanks first, const std::function<void()>& block,
                           const CallOptions& options);

template <typename Block>
auto run_in_turns(FirstRanks first, Block& block, const CallOptions& options) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Block&>>;
  if constexpr (std::is_void_v<Result>) {
    take_turns(first, [&] { block(); }, options);
  } else {
    std::optional<Result> result;
    take_turns(first, [&] { result.emplace(block()); }, options);
    return *std::move(result);
  }
}

}  // namespace detail

// Rank 0 of the job runs `block` while the others wait; when it is done they run it too, all at the
// same time. Returns what the block returned on this rank (a copy where it returned a reference).
//
// When the block throws on rank 0, it is not run elsewhere: rank 0 gets its own exception, every
// other rank a DistributedError (peer_failed, failed_ranks() = {0}) that quotes its what(). The
// world stays usable then. What the block throws later, on another rank, only that rank sees.
//
// Blocks until rank 0 is done: options.timeout is the longest that the others wait for it, so give
// one where a download takes longer than the world's time-out. Passes over the world's operations
// on host memory; the block itself must not call collective operations of the world.
template <std::invocable Block>
auto zero_first(Block&& block, const CallOptions& options = {}) {
  return detail::run_in_turns(detail::FirstRanks::zero, block, options);
}

// The same with local rank 0 of every node (local_rank() == 0) as the first ones, for what each
// node needs once: the rest, on all nodes, waits until all of them are done. When the block throws
// on some of them, these get their own exceptions and all others, wherever they are, the error that
// names them: the ranks must not disagree about whether the job goes on.
template <std::invocable Block>
auto local_zero_first(Block&& block, const CallOptions& options = {}) {
  return detail::run_in_turns(detail::FirstRanks::local_zero, block, options);
}

// Whether the job was told to end (SIGTERM, or request_stop()) on any rank: the same answer on all
// ranks for the same call, so that all leave the loop at the same step and none waits for another
// in an operation that no longer comes. One all_reduce of a byte over the world: microseconds, so
// call it at every step. Once true it stays true until destroy_process_group().
//
// Needs InitOptions::on_sigterm = StopPolicy::agree: with end_calls SIGTERM ends this call as any
// other, by ErrorCode::stopped. The launcher kills what is left after its grace (muster:
// --shutdown-timeout), so what follows has that long.
MUSTER_API bool should_stop(const CallOptions& options = {});

// As if SIGTERM had come to this process: should_stop() becomes true on all ranks. For a program's
// own reasons: a budget is used up, the loss is NaN. Never blocks; any thread. With end_calls it
// ends this process's calls as SIGTERM does.
MUSTER_API void request_stop();

}  // namespace muster
