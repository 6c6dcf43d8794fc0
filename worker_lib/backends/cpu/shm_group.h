// Collectives between the ranks of a group on one node, through their Segment. Every call has at
// least one meeting: each rank writes its call into its line of the segment and waits for all
// others' lines, so a mismatch is found and named before data moves, and a time-out names the
// missing ranks. Calls of up to SegmentShape::small_bytes carry their data along and end there;
// larger ones are pipelined in chunks (shm_exchange.h, shm_reduction.h); buffers in memory from
// allocate_shared() are read in place.
//
// One ShmGroup per rank and group. run(), check() and allocate_shared() from one thread at a time;
// abort() and awaited() from any. After the first failure the group stays failed on all its ranks:
// the rank that finds it aborts the segment. Exceptions are a time-out, which the owner reports
// once it is known which ranks are to blame, and a mismatch, which all ranks find.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/backends/cpu/shm_meeting.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class SharedRegions;
class ShmCall;
struct Route;

class ShmGroup {
 public:
  // `local`: the ranks of the segment in its order, and the index of this one. Roots, counts etc.
  // of operations refer to indices among them. REQUIRES: at least two.
  ShmGroup(std::shared_ptr<Segment> segment, Members local);
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  // Performs any collective (of host memory). Returns when this rank's result is in place and
  // others no longer read its buffers. Calls with equal counts do not allocate.
  Outcome<> run(const Operation& operation, Deadline deadline);

  // Meets and compares the calls, moves nothing: a mismatch in a composed operation is reported as
  // the user wrote it, before its parts begin.
  Outcome<> check(const Operation& operation, Deadline deadline);

  // Collective. Operations with buffers in it need no copies.
  Outcome<SharedBlock> allocate_shared(size_t bytes, Deadline deadline);

  // The ranks that the current call waits for: those that have not reached it, else all others.
  std::vector<int> awaited() const;

  void abort(const Failure& failure) { segment_->abort(failure); }

  const Members& local() const { return local_; }
  // Replaces the one chosen for this machine. Not while a call runs.
  void set_patience(Patience patience) { patience_ = patience; }

 private:
  ShmCall begin(const Operation& operation, Deadline deadline);
  Outcome<> end(ShmCall& call, bool good);
  Outcome<UniqueFd> hand_round(size_t bytes, Deadline deadline);
  Outcome<> agree(const Outcome<std::byte*>& mapped, Deadline deadline);
  Failure end_for_all(Failure failure);

  std::shared_ptr<Segment> segment_;
  Members local_;
  Patience patience_ = kPatience;
  std::shared_ptr<SharedRegions> regions_;
  uint64_t sequence_ = 0;     // Of the calls in this segment.
  uint64_t step_base_ = 0;    // Of this rank's next call in chunks.
  uint64_t last_staged_ = 0;  // The last call in which chunk slots were used.
  uint64_t last_region_ = 0;  // The number of the last region.
  // Reused by calls, so that they do not allocate.
  std::vector<Route> routes_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace muster::worker
