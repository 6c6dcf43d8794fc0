// One collective in progress on this rank: the meeting, and the ranks' published progress. Nothing
// is reset between the calls of a group: numbers only grow.
//
// The meeting: each rank writes its line, storing the call's number last, and waits until all lines
// have that number. A line is rewritten two calls later: no rank gets there before all have reached
// the call in between, and by then all are done with this one.
//
// Chunks: a rank's `produced` and `consumed` count from the `step_base` in its line.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/backends/cpu/shm_regions.h"
#include "worker_lib/backends/cpu/shm_routes.h"
#include "worker_lib/backends/cpu/waiting.h"
#include "worker_lib/call_word.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// State of a rank's group before a call.
struct ShmSetting {
  Segment& segment;
  const Members& local;
  const SharedRegions& regions;
  Patience patience;
  std::vector<Route>& routes;             // Scratch for the call.
  std::vector<const std::byte*>& inputs;  // Scratch for the call.
  uint64_t sequence;
  uint64_t step_base;
  uint64_t last_staged;  // Last call in which chunk slots were used.
};

class ShmCall : public ShmSetting {
 public:
  ShmCall(const ShmSetting& setting, const Operation& called, Deadline deadline)
      : ShmSetting(setting), operation(called), deadline_(deadline) {}
  ShmCall(ShmCall&&) = delete;

  int ranks() const { return local.size(); }
  int me() const { return local.me; }

  // ---- the meeting. Every bool below is false if the call failed: see take_failure().

  // Waits until no rank reads chunk slots for the call `last_staged` any more.
  bool wait_for_slots();
  // Announces this rank, with its data in `source`, and waits for the others. Fails if their calls
  // differ. From here on all ranks can read the slots and small areas.
  bool meet(DataSource source, uint64_t piece_bytes);
  CallLine& line(int rank) const { return segment.call_line(rank, sequence); }
  DataSource source_of(int rank) const { return CallWord::unpack(line(rank).call).source; }
  uint64_t piece_bytes_of(int rank) const;
  // Address of a rank's data in a small call.
  std::byte* small_of(int rank, bool in_line) const {
    return in_line ? line(rank).inlined : segment.small_data(rank, sequence);
  }
  // Local address of a place in memory from allocate_shared() that `rank` has published.
  std::byte* shared_at(int rank, RegionOffset place, size_t bytes) const {
    std::byte* const at = regions.at(place, rank, bytes);
    CHECK(at != nullptr);
    return at;
  }

  // ---- progress: counts of chunks of this call

  void publish_produced(uint64_t chunks) {
    publish(segment.progress(me()).produced, step_base + chunks);
  }
  void publish_consumed(uint64_t chunks) {
    publish(segment.progress(me()).consumed, step_base + chunks);
  }
  // Called after this rank's last read of others' slots, if the call used slots at all.
  void publish_finished() { publish(segment.progress(me()).finished, sequence); }
  bool wait_produced(int rank, uint64_t chunks);
  bool wait_consumed(int rank, uint64_t chunks);
  bool wait_all_produced(uint64_t chunks);
  bool wait_all_consumed(uint64_t chunks);

  // Returns true if the group was aborted; polled during long work without a wait.
  bool interrupted();
  // Fails the group on all ranks, with `failure` unless another one was first. Returns false.
  bool fail(Failure failure);
  Failure take_failure() { return std::move(*failure_); }

  const Operation& operation;
  // Results for later calls: chunks counted, and whether any rank used its slots.
  uint64_t steps = 0;
  bool uses_slots = false;

 private:
  template <typename Reached>
  bool wait_for(int first, int last, const Reached& reached);
  template <std::atomic<uint64_t> ProgressLine::* count>
  bool wait_for_count(int rank, uint64_t chunks);
  template <std::atomic<uint64_t> ProgressLine::* count>
  bool wait_for_all_counts(uint64_t chunks);
  void publish(std::atomic<uint64_t>& count, uint64_t value) {
    count.store(value);
    ring(segment.collective_bell());
  }
  bool give_up(Waited how, const std::vector<int>& missing);
  bool compare_lines();

  const Deadline deadline_;
  std::optional<Failure> failure_;
};

// Each performs the call, for the kinds that its file says; returns false on failure: see
// ShmCall::take_failure().
bool exchange(ShmCall& call);     // shm_exchange.cc
bool reduce_call(ShmCall& call);  // shm_reduction.cc

}  // namespace muster::worker
