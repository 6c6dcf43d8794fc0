// What carries a group's operations: the seam behind which cpu, nccl and gloo stand.
//
// A backend belongs to one group. The front (group.h) has checked every call, numbers collectives,
// keeps their order, and calls run() from one thread at a time; point-to-point calls come from any
// thread, also while a collective runs. After the first failure of a collective the front calls
// nothing but abort() and the destructor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/call_signature.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// What a backend gets to set itself up.
struct GroupSetup {
  std::string name;  // For messages.
  Members members;
  // Keys of this group and backend alone. Used during set-up by the calling thread, never later.
  StoreClient store;
  Deadline deadline;                   // Of the set-up.
  std::chrono::milliseconds limit{0};  // How long that gives, for messages; 0: unknown.
  // Whether set-up should be given up (a peer died, abort()); may be asked at any time.
  std::function<std::optional<Failure>()> interrupted;
  int cuda_device = 0;
  // Says who is to blame for a suspicion about a collective: where the backend must know before it
  // ends what is under way. May take half a second.
  std::function<Failure(const Failure& suspected, uint64_t sequence)> name_stragglers = {};
};

// The most that allocate_shared() gives a rank.
inline constexpr size_t kSharedBytesMax = size_t{1} << 43;

// Memory of allocate_shared().
struct SharedBlock {
  std::shared_ptr<void> owner;
  void* data = nullptr;
};

class GroupBackend {
 public:
  GroupBackend() = default;
  GroupBackend(const GroupBackend&) = delete;
  GroupBackend& operator=(const GroupBackend&) = delete;
  // Waits for no peer, but for what a library does for itself (NCCL: seconds at most).
  virtual ~GroupBackend() = default;

  // Performs a collective on the calling thread; returns when this rank's result is in place. A
  // time-out is a suspicion that names the ranks that this one waited for, where the backend knows
  // them; a mismatch is one where it has not heard of all members.
  virtual Outcome<> run(const Operation& operation, Deadline deadline) = 0;

  // Backends of GPU memory begin collectives on a stream instead, and run() is never called.
  virtual bool is_asynchronous() const { return false; }
  virtual Outcome<std::shared_ptr<WorkState>> start(const Operation& operation, Deadline deadline);

  // Performs a send or a receive on the calling thread. The value: who sent it (group rank).
  virtual Outcome<int> transfer(const Transfer& transfer, Deadline deadline) = 0;
  // Begins all of them at the same time; they progress without further calls. One state for each.
  virtual Outcome<std::vector<std::shared_ptr<WorkState>>> begin(
      const std::vector<Transfer>& transfers, Deadline deadline) = 0;
  // Why such a transfer cannot be done at all (tags, any source); empty: it can.
  virtual std::string refuses(const Transfer&) const { return {}; }

  // Ends every blocked and future call with `failure`, within milliseconds. Any thread; the first
  // failure counts. Tells peers where the backend has a quick way (shared memory); the front tells
  // them too.
  virtual void abort(const Failure& failure) = 0;

  // Ends this rank's own sends and receives that are under way, whose other ends will do nothing
  // any more; others notice nothing. Only the destructor follows. The default leaves them to it.
  virtual void end_transfers(const Failure&) {}

  // ---- for other ranks that ask where this one is: any thread, at any time

  // Members that the collective under way waits for; none: it does not know.
  virtual std::vector<int> awaited() const { return {}; }
  // What the last collectives were, where members cannot all see what the others call.
  virtual std::vector<NumberedCall> last_calls() const { return {}; }
  // Of an asynchronous backend: the number of the first collective that is not done.
  virtual std::optional<uint64_t> first_under_way() const { return std::nullopt; }

  // Collective. The default is plain memory, zeroed and page-aligned.
  virtual Outcome<SharedBlock> allocate_shared(size_t bytes, Deadline deadline);
};

// Each returns a failure of code `backend` that says why where it cannot be had.
Outcome<std::unique_ptr<GroupBackend>> make_cpu_backend(GroupSetup setup);
Outcome<std::unique_ptr<GroupBackend>> make_nccl_backend(GroupSetup setup);
Outcome<std::unique_ptr<GroupBackend>> make_gloo_backend(GroupSetup setup);

}  // namespace muster::worker
