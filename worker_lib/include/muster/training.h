// Two points at which the ranks of a training job agree: which rank prepares something first, and
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
//   // One of them got SIGTERM: all ranks are here, at the same step.
//   muster::save_checkpoint("last.bin", parameters());
//
// All of these are collective: every member calls them, in the same order as all its operations.
// They throw DistributedErrors like the operations of a group, and not_initialized. Each matches
// only itself: should_stop() on one rank and all_reduce() on another are a mismatch, although both
// perform the same operation.
#pragma once

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/process_group.h"
#include "muster/types.h"

namespace muster {

namespace detail {

// Calls a function of the program for a C function, which no exception may pass.
class Caught {
 public:
  // Returns null, or why the function failed.
  template <typename Function>
  const char* call(Function&& function) noexcept {
    try {
      function();
      return nullptr;
    } catch (const std::exception& error) {
      thrown_ = std::current_exception();
      return error.what();
    } catch (...) {
      thrown_ = std::current_exception();
      return "the program threw an exception that is not a std::exception";
    }
  }
  const std::exception_ptr& thrown() const { return thrown_; }

 private:
  std::exception_ptr thrown_;
};

template <typename Block>
void take_turns(int is_local, Block&& block, const muster_call_options& options) {
  struct Turn {
    Block& block;
    Caught caught;
    std::vector<int> ranks;
  } turn{block, {}, {}};
  const muster_block run = [](void* context, muster_outcome* outcome) {
    Turn& own = *static_cast<Turn*>(context);
    outcome->message = own.caught.call([&] {
      try {
        own.block();
      } catch (const DistributedError& error) {
        outcome->code = static_cast<int>(error.code());
        for (const GlobalRank rank : error.failed_ranks())
          own.ranks.push_back(rank.value);
        throw;
      }
    });
    if (outcome->message == nullptr) return;
    if (outcome->code == MUSTER_OK) outcome->code = MUSTER_ERROR_SYSTEM;
    outcome->ranks = own.ranks.data();
    outcome->ranks_length = own.ranks.size();
  };
  const muster_status status = muster_zero_first(is_local, run, &turn, &options);
  if (turn.caught.thrown()) std::rethrow_exception(turn.caught.thrown());
  throw_unless_ok(status);
}

template <typename Block>
auto run_in_turns(int is_local, Block& block, const muster_call_options& options) {
  using Result = std::decay_t<std::invoke_result_t<Block&>>;
  if constexpr (std::is_void_v<Result>) {
    take_turns(is_local, block, options);
  } else {
    std::optional<Result> result;
    take_turns(is_local, [&] { result.emplace(block()); }, options);
    return *std::move(result);
  }
}

}  // namespace detail

// Rank 0 of the job runs `block` while the others wait; then the others run it, all at the same
// time. Returns what the block returned on this rank (a copy if it returned a reference).
//
// If the block throws on rank 0, it is not run elsewhere: rank 0 gets its own exception, every
// other rank a DistributedError (peer_failed, failed_ranks() = {0}) that quotes its what(), and the
// world stays usable. If the block throws later on another rank, only that rank sees the exception.
//
// Blocks until rank 0 is done; options.timeout limits that wait, so set it if a download takes
// longer than the world's time-out. Uses the world's operations on host memory; the block itself
// must not call collective operations of the world.
template <typename Block, std::enable_if_t<std::is_invocable_v<Block&>, int> = 0>
MUSTER_CALL auto zero_first(Block&& block, const CallOptions& options = {}) {
  return detail::run_in_turns(0, block, detail::c_options(options, MUSTER_CALLER));
}

// Like zero_first(), but local rank 0 of every node (local_rank() == 0) goes first, for what each
// node needs once; the rest, on all nodes, wait for all of them. If the block throws on some of
// these, they get their own exceptions and every other rank, on any node, gets the error that names
// them, since the ranks must agree on whether the job continues.
template <typename Block, std::enable_if_t<std::is_invocable_v<Block&>, int> = 0>
MUSTER_CALL auto local_zero_first(Block&& block, const CallOptions& options = {}) {
  return detail::run_in_turns(1, block, detail::c_options(options, MUSTER_CALLER));
}

// True if the job was asked to end (SIGTERM, or request_stop()) on any rank. All ranks get the same
// answer for the same call, so that all leave the loop at the same step and none waits in an
// operation that another no longer calls. One all_reduce of a byte over the world, which takes
// microseconds: call it at every step. Once true it stays true until destroy_process_group().
//
// Also true once muster has warned of the job's end under Slurm (muster --notice-before, sbatch
// --signal), whatever InitOptions::on_sigterm is.
//
// Requires InitOptions::on_sigterm = StopPolicy::agree: with end_calls SIGTERM ends this call like
// any other, with ErrorCode::stopped. The launcher kills the remaining processes after a grace
// period (muster: --shutdown-timeout), which limits what can still be done.
MUSTER_CALL inline bool should_stop(const CallOptions& options = {}) {
  const muster_call_options given = detail::c_options(options, MUSTER_CALLER);
  int stop = 0;
  detail::throw_unless_ok(muster_should_stop(&stop, &given));
  return stop != 0;
}

// Acts as if this process had received SIGTERM: should_stop() becomes true on all ranks; with
// end_calls it ends this process's calls. For a program's own reasons: a budget is used up, the
// loss is NaN. Never blocks; any thread.
inline void request_stop() {
  detail::throw_unless_ok(muster_request_stop());
}

}  // namespace muster
