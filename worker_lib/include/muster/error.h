// The exception that the library throws. Two others pass through it: std::bad_alloc, and what a
// block of zero_first() or local_zero_first() throws, on the rank that ran the block.
//
//   #include <cstdio>
//   #include <muster/process_group.h>
//
//   try {
//     muster::world().all_reduce(gradients);
//   } catch (const muster::DistributedError& error) {
//     // "all_reduce 17 of group world: rank 2 (node7, pid 4711) died; ..."
//     std::fprintf(stderr, "%s\n", error.what());
//     if (error.code() == muster::ErrorCode::peer_failed) return 1;  // The launcher restarts all.
//     throw;
//   }
//
// The number in such a message counts, from 1, the operations that all members of the group perform
// together (operations on host and on GPU memory are counted separately; some calls consist of two
// or three; sends, receives and monitored_barrier() have no number). Ranks that report different
// numbers are out of step.
//
// invalid_argument, not_initialized, not_member and forked mean that nothing was sent and nothing
// changed: the buffers are as they were and the group stays usable. If only one rank was refused,
// the others wait for it in the operation: it repeats the call with correct arguments, or they fail
// at their deadline.
//
// A rank without memory for a call gets system, without operation() and failed_ranks(); others may
// wait for it in the operation.
//
// With every other code, including system (the kernel may refuse memory to one rank), the contents
// of the buffers are undefined and the group whose operation failed is unusable, since its ranks no
// longer agree on what happened: every further call throws that error at once
// (ProcessGroup::failure() returns it). Other groups are not affected. These failures leave the
// group usable, since none of its operations failed: those of monitored_barrier(); those of
// new_group() and split() when the new group cannot be made; a checkpoint that cannot be written or
// read (system); a block of zero_first() or local_zero_first() that throws (peer_failed); and lists
// of GradientBuckets that differ (mismatch).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "muster/muster.h"
#include "muster/types.h"

namespace muster {

// The numbers are part of the C ABI.
enum class ErrorCode : uint8_t {
  invalid_argument = 1,  // A wrong size, dtype, root, device or option, or an empty handle.
  not_initialized = 2,   // The call came before init_process_group() or after
                         // destroy_process_group().
  not_member = 3,        // This rank does not belong to the group.
  forked = 4,            // This is a child of fork() of a process that used the library.
  environment = 5,       // A variable is missing, malformed or contradicts another.
  rendezvous = 6,        // The store through which the ranks meet failed or is gone.
  timeout = 7,           // The deadline passed; failed_ranks(): the ranks that the others wait for.
  peer_failed = 8,       // Another rank died or left; failed_ranks(): that rank, or what ended it.
  aborted = 9,           // abort() was called here or on another rank.
  stopped = 10,          // The job was asked to end (SIGTERM).
  mismatch = 11,         // Different operations were called; failed_ranks(): the ranks that differ
                         // from most, or all ranks, if the two most frequent calls are equally so.
  backend = 12,          // NCCL, CUDA or Gloo failed or is missing.
  system = 13,           // The kernel refused: memory, descriptors, sockets, a file.
};

constexpr const char* name_of(ErrorCode code) {
  return detail::name_in({"unknown", "invalid_argument", "not_initialized", "not_member", "forked",
                          "environment", "rendezvous", "timeout", "peer_failed", "aborted",
                          "stopped", "mismatch", "backend", "system"},
                         code);
}

class MUSTER_API DistributedError : public std::runtime_error {
 public:
  // `message`, one line: what was tried, on what, and what to do next.
  DistributedError(ErrorCode code, const std::string& message, std::string operation = {},
                   std::string group = {}, std::vector<GlobalRank> failed_ranks = {})
      : std::runtime_error(message),
        code_(code),
        details_(std::make_shared<const Details>(
            Details{std::move(operation), std::move(group), std::move(failed_ranks)})) {}
  DistributedError(const DistributedError&) noexcept = default;
  DistributedError& operator=(const DistributedError&) noexcept = default;
  ~DistributedError() override = default;

  ErrorCode code() const noexcept { return code_; }
  // "all_reduce", or another call that failed ("init_process_group"); may be empty.
  const std::string& operation() const noexcept { return details_->operation; }
  // "world", or the name that new_group() was given or chose, even if it could not make the group.
  // Empty if no group was involved.
  const std::string& group() const noexcept { return details_->group; }
  // The ranks (in the job) where the failure began, ascending, equal on all ranks that throw for
  // the same reason, this rank included if it began here: those that died, called abort(), were
  // refused something by their kernel (system), could not write, or differ from most. For a
  // time-out: the ranks that are missing or stopped, not those that these hold up in other calls.
  // If ranks wait for each other in different calls: those that are not in the most frequent call,
  // or all of them, this one included, if two calls are the most frequent (as with two ranks).
  // Empty: unknown, or nothing has failed (invalid_argument and the like).
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

namespace detail {

// The thread's last failure in a function of muster.h.
inline DistributedError last_error() {
  std::vector<int> numbers(muster_last_error_ranks(nullptr, 0));
  muster_last_error_ranks(numbers.data(), numbers.size());
  std::vector<GlobalRank> ranks;
  for (const int number : numbers)
    ranks.push_back(GlobalRank{number});
  const char* operation = "";
  const char* const message = muster_last_error_in_cpp(&operation);
  return {static_cast<ErrorCode>(muster_last_error_code()), message, operation,
          muster_last_error_group(), std::move(ranks)};
}

// For calls that return a failure, if any; a child of fork() cannot ask, which is thrown.
inline std::optional<DistributedError> failure_of(muster_status status) {
  if (status == MUSTER_OK || status == MUSTER_IN_PROGRESS) return std::nullopt;
  if (status == MUSTER_ERROR_FORKED) throw last_error();
  return last_error();
}

inline void throw_unless_ok(muster_status status) {
  if (status != MUSTER_OK) throw last_error();
}

inline int not_negative(int number) {
  if (number < 0) throw last_error();
  return number;
}

[[noreturn]] inline void refuse(const std::string& call, const std::string& why) {
  throw DistributedError(ErrorCode::invalid_argument, call + ": " + why, call);
}

[[noreturn]] inline void throw_empty(const char* call, const std::string& what,
                                     const char* where_from) {
  refuse(call, "empty " + what + ": get one from " + where_from);
}

}  // namespace detail

}  // namespace muster
