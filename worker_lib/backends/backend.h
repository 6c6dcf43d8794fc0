// The interface between a group and the backend that carries its operations: cpu, nccl or gloo.
//
// A backend belongs to one group. The group (group.h) validates calls, numbers and orders the
// collectives, and calls run() from one thread at a time; point-to-point calls come from any thread
// at any time. After a collective has failed, the group calls only abort() and the destructor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/call_word.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// Returns the reason to give up a wait, if there is one; callable at any time.

// Inputs of a backend's set-up.
struct GroupSetup {
  std::string name;  // For error messages.
  Members members;
  std::string secret = {};  // The job's secret; see link_proof.h.
  // Scoped to this group and backend. Used only during set-up, by the calling thread.
  StoreClient store;
  Deadline deadline;                   // For the set-up.
  std::chrono::milliseconds limit{0};  // The deadline as a duration, for messages; 0: unknown.
  Interrupted interrupted;             // Set-up ends early when a peer dies or abort() is called.
  int cuda_device = 0;
  // Finds the ranks to blame for a suspected collective, for a backend that must know them before
  // it stops the operations in flight. May take half a second.
  std::function<Failure(const Failure& suspected, uint64_t sequence)> name_stragglers = {};
};

// Largest block that allocate_shared() grants a rank; the kernel's own limits are lower.
inline constexpr size_t kSharedBytesMax = size_t{1} << 43;

struct SharedBlock {
  std::shared_ptr<void> owner;
  void* data = nullptr;
};

class GroupBackend {
 public:
  GroupBackend() = default;
  GroupBackend(GroupBackend&&) = delete;
  // Waits for no peer, only for the clean-up of a library (NCCL: seconds at most).
  virtual ~GroupBackend() = default;

  // Performs a collective on the calling thread; returns when this rank's result is in place. A
  // time-out is a suspicion that names the ranks this one waited for, if the backend knows them; a
  // mismatch is a suspicion if the backend has not seen the calls of all members.
  virtual Outcome<> run(const Operation& operation, Deadline deadline) = 0;

  // True for backends that enqueue collectives on a stream. Their run() returns at once and the
  // call's stream waits for the result, except that a barrier blocks; it REQUIRES: stream_waits.
  virtual bool is_asynchronous() const { return false; }
  virtual Outcome<std::shared_ptr<WorkState>> start(const Operation& operation, Deadline deadline);
  // True when every enqueued operation has completed or failed; wait_idle() blocks until then.
  virtual bool is_idle() const { return true; }
  virtual void wait_idle() {}

  // Performs a send or a receive on the calling thread. Returns the sender's group rank. REQUIRES,
  // like begin(): the peer is not this rank (check_transfer() refuses that).
  virtual Outcome<int> transfer(const Transfer& transfer, Deadline deadline) = 0;
  // Starts all transfers at once; they progress without further calls. Returns one state for each.
  virtual Outcome<std::vector<std::shared_ptr<WorkState>>> begin(
      const std::vector<Transfer>& transfers, Deadline deadline) = 0;
  // Reason why the backend cannot do such a transfer at all (tags, any source); empty: it can.
  virtual std::string refuses(const Transfer&) const { return {}; }

  // Ends every blocked and future call with the first `failure`, within milliseconds. Any thread.
  // Also notifies peers if there is a fast way (shared memory), as the group does.
  virtual void abort(const Failure& failure) = 0;

  // Ends this rank's sends and receives in flight, which their peers will never complete; affects
  // no peer. Only the destructor may follow. By default the destructor ends them.
  virtual void end_transfers(const Failure&) {}

  // ---- state that other ranks query: any thread, at any time

  // Members that the current collective waits for; empty: unknown.
  virtual std::vector<int> awaited() const { return {}; }
  // The most recent collectives, from a backend whose members cannot all see each other's calls.
  virtual std::vector<NumberedCall> last_calls() const { return {}; }
  // Sequence number of the first incomplete collective of an asynchronous backend.
  virtual std::optional<uint64_t> first_under_way() const { return std::nullopt; }

  // Collective. The default is private memory, zeroed and page-aligned.
  // REQUIRES: bytes <= kSharedBytesMax.
  virtual Outcome<SharedBlock> allocate_shared(size_t bytes, Deadline deadline);
};

// Each fails with code `backend` and the reason if that backend is not available. For cpu and gloo,
// REQUIRES: more than one member; a group of one in host memory has its own.
Outcome<std::unique_ptr<GroupBackend>> make_cpu_backend(GroupSetup setup);
Outcome<std::unique_ptr<GroupBackend>> make_nccl_backend(GroupSetup setup);
Outcome<std::unique_ptr<GroupBackend>> make_gloo_backend(GroupSetup setup);

}  // namespace muster::worker
