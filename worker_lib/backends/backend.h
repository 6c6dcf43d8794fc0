// The interface between a group and what carries its operations: the cpu, nccl and gloo backends.
//
// A backend belongs to one group. The group (group.h) has checked every call, numbers collectives,
// keeps their order, and calls run() from one thread at a time; point-to-point calls come from any
// thread, also while a collective runs. After the first failure of a collective the group calls
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

// Why a wait should be given up, if so; may be called at any time.
using Interrupted = std::function<std::optional<Failure>()>;

// What a backend needs for its set-up.
struct GroupSetup {
  std::string name;  // For messages.
  Members members;
  std::string secret = {};  // The job's; see link_proof.h.
  // Keys of this group and backend alone. Used during set-up by the calling thread, never later.
  StoreClient store;
  Deadline deadline;                   // For the set-up.
  std::chrono::milliseconds limit{0};  // The time that this allows, for messages; 0: unknown.
  Interrupted interrupted;             // By the death of a peer, or abort().
  int cuda_device = 0;
  // Finds the ranks to blame for a suspicion about a collective, for a backend that must know them
  // before it stops what is in flight. May take half a second.
  std::function<Failure(const Failure& suspected, uint64_t sequence)> name_stragglers = {};
};

// The largest block that a rank can get from allocate_shared(); the kernel's own limits are lower.
inline constexpr size_t kSharedBytesMax = size_t{1} << 43;

// What allocate_shared() returns.
struct SharedBlock {
  std::shared_ptr<void> owner;
  void* data = nullptr;
};

class GroupBackend {
 public:
  GroupBackend() = default;
  GroupBackend(const GroupBackend&) = delete;
  GroupBackend& operator=(const GroupBackend&) = delete;
  // Waits for no peer, only for a library's own clean-up (NCCL: seconds at most).
  virtual ~GroupBackend() = default;

  // Performs a collective on the calling thread; returns when this rank's result is in place. A
  // time-out is a suspicion that names the ranks that this one waited for, if the backend knows
  // them; a mismatch is a suspicion if the backend has not heard from all members.
  virtual Outcome<> run(const Operation& operation, Deadline deadline) = 0;

  // Backends for GPU memory put collectives on a stream instead. Then run() returns at once, and
  // the call's stream waits for the result; a barrier still blocks. REQUIRES: stream_waits.
  virtual bool is_asynchronous() const { return false; }
  virtual Outcome<std::shared_ptr<WorkState>> start(const Operation& operation, Deadline deadline);
  // Whether all that was put on a stream is complete or has failed; wait_idle() blocks until then.
  virtual bool is_idle() const { return true; }
  virtual void wait_idle() {}

  // Performs a send or a receive on the calling thread. Returns the sender's group rank.
  virtual Outcome<int> transfer(const Transfer& transfer, Deadline deadline) = 0;
  // Starts all of them at once; they progress without further calls. Returns one state for each.
  virtual Outcome<std::vector<std::shared_ptr<WorkState>>> begin(
      const std::vector<Transfer>& transfers, Deadline deadline) = 0;
  // Why such a transfer is not possible at all (tags, any source); empty: it is possible.
  virtual std::string refuses(const Transfer&) const { return {}; }

  // Ends every blocked and future call with `failure`, within milliseconds. Any thread; the first
  // failure counts. Also tells peers if there is a quick way (shared memory), as the group does.
  virtual void abort(const Failure& failure) = 0;

  // Ends this rank's own sends and receives in flight whose peers will never complete them; no peer
  // is affected. Only the destructor may follow. By default the destructor ends them.
  virtual void end_transfers(const Failure&) {}

  // ---- for other ranks that ask where this one is: any thread, at any time

  // Members that the current collective waits for; empty: unknown.
  virtual std::vector<int> awaited() const { return {}; }
  // The most recent collectives, from a backend whose members cannot all see what the others call.
  virtual std::vector<NumberedCall> last_calls() const { return {}; }
  // For an asynchronous backend: the number of the first collective that is not complete.
  virtual std::optional<uint64_t> first_under_way() const { return std::nullopt; }

  // Collective. The default is private memory, zeroed and page-aligned. REQUIRES: bytes <=
  // kSharedBytesMax.
  virtual Outcome<SharedBlock> allocate_shared(size_t bytes, Deadline deadline);
};

// Each fails with code `backend` and the reason where that backend is not available. REQUIRES, of
// cpu and gloo: more than one member; in host memory a group of one has group_solo.h.
Outcome<std::unique_ptr<GroupBackend>> make_cpu_backend(GroupSetup setup);
Outcome<std::unique_ptr<GroupBackend>> make_nccl_backend(GroupSetup setup);
Outcome<std::unique_ptr<GroupBackend>> make_gloo_backend(GroupSetup setup);

}  // namespace muster::worker
