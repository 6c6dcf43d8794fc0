// The one exception that the library throws.
//
//   #include <cstdio>
//   #include <muster/process_group.h>
//
//   try {
//     muster::world().all_reduce(gradients);
//   } catch (const muster::DistributedError& error) {
//     // "all_reduce 17 of group world: rank 2 (node7, pid 4711) died; ..."
//     std::fprintf(stderr, "%s\n", error.what());
//     // The launcher starts all ranks anew.
//     if (error.code() == muster::ErrorCode::peer_failed) return 1;
//     throw;
//   }
//
// The number in such a message is that of the operation among those that all members of the group
// perform together, from 1 on (operations on host and on GPU memory are counted apart, some calls
// are two or three of them, and sends, receives and monitored_barrier() have none). Ranks that
// speak of different numbers have lost step.
//
// invalid_argument, not_initialized, not_member and forked say that nothing was sent and nothing
// changed: the buffers are as they were and the group stays usable. But where one rank alone was
// refused, the others are in the operation and wait for it: it makes the call up, with arguments
// that are right, or they end by their deadline.
//
// With every other code, system too (the kernel refused memory to this rank alone, say), the
// buffers' contents are undefined, and the group whose operation failed is unusable, since its
// ranks no longer agree on what happened: every further call throws that error at once
// (ProcessGroup::failure() tells it). Other groups go on. These failures leave the group usable,
// since no operation of it failed: those of monitored_barrier(); of new_group() and split(), where
// it is the new group that cannot be made; a checkpoint that cannot be written or read (system);
// the block of zero_first() that throws (peer_failed); and lists of GradientBuckets that differ
// (mismatch).
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "muster/types.h"

namespace muster {

// The numbers are part of the C ABI.
enum class ErrorCode : uint8_t {
  invalid_argument = 1,  // A wrong size, dtype, root, device or option, or an empty handle.
  not_initialized = 2,   // init_process_group() was not called, or destroyed since.
  not_member = 3,        // This rank does not belong to the group.
  forked = 4,            // The object was made before a fork(), and this is the child.
  environment = 5,       // A variable is missing, malformed or contradicts another.
  rendezvous = 6,        // The store through which the ranks meet fails or is gone.
  timeout = 7,           // Not done in time; failed_ranks() are those that kept all others.
  peer_failed = 8,       // Another rank died or left; failed_ranks(): it, or who made it end.
  aborted = 9,           // abort() was called here or on another rank.
  stopped = 10,          // The job was told to end (SIGTERM).
  mismatch = 11,         // The ranks called different operations; failed_ranks() differ from most,
                         // or are all of them, where no camp is larger than every other.
  backend = 12,          // NCCL, CUDA or Gloo failed, or is not there.
  system = 13,           // The kernel refused: memory, descriptors, sockets, a file.
};

// "timeout".
MUSTER_API const char* name_of(ErrorCode code);

class MUSTER_API DistributedError : public std::runtime_error {
 public:
  // `message` says what was tried, on what, and what to do next, in one line.
  DistributedError(ErrorCode code, const std::string& message, std::string operation = {},
                   std::string group = {}, std::vector<GlobalRank> failed_ranks = {});
  DistributedError(const DistributedError&) noexcept = default;
  DistributedError& operator=(const DistributedError&) noexcept = default;
  ~DistributedError() override;

  ErrorCode code() const noexcept { return code_; }
  // "all_reduce", or the call that failed ("init_process_group"); empty where there was neither.
  const std::string& operation() const noexcept { return details_->operation; }
  // The group's name: "world", or what new_group() was given or chose, also where it could not make
  // the group. Empty where no group was meant.
  const std::string& group() const noexcept { return details_->group; }
  // Where it began: ranks in the job, ascending, the same on all ranks that throw for the same
  // reason, and this rank among them where it began here. Who died, called abort(), was refused
  // something by its kernel (system), could not write, differs from most; of a time-out the ranks
  // that have not come or are stopped, and not those that are kept by them in other calls. Where
  // ranks wait for each other in different calls, those that are not where most are, or all of
  // them, this one too, where no camp is larger than every other: of two, both. Empty: nobody
  // knows, or nothing has failed (invalid_argument and its like).
  const std::vector<GlobalRank>& failed_ranks() const noexcept { return details_->failed_ranks; }

 private:
  struct Details {
    std::string operation;
    std::string group;
    std::vector<GlobalRank> failed_ranks;
  };
  ErrorCode code_;
  std::shared_ptr<const Details> details_;
};

}  // namespace muster
