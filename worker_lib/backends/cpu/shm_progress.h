// One collective in progress on this rank: the meeting, and publishing and reading how far each
// rank is. Nothing is reset between the calls of a group: numbers only grow.
//
// The meeting: each rank writes its line and stores the call's number last; it then waits until all
// lines have that number. A line is written again two calls later; no rank gets there before all
// have reached the call between, and by then all are done with this one.
//
// Chunks: a rank's `produced` and `consumed` count from the `step_base` in its line.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/backends/cpu/shm_regions.h"
#include "worker_lib/backends/cpu/shm_routes.h"
#include "worker_lib/backends/cpu/waiting.h"
#include "worker_lib/call_word.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class ShmCall {
 public:
  struct Setting {
    Segment& segment;
    const Members& local;
    const SharedRegions& regions;
    Patience patience;
    std::vector<Route>& routes;             // For the call to use.
    std::vector<const std::byte*>& inputs;  // The same.
  };

  // `number` is the sequence, `base` the step_base.
  ShmCall(const Setting& setting, const Operation& called, Deadline deadline, uint64_t number,
          uint64_t base)
      : operation(called),
        segment(setting.segment),
        regions(setting.regions),
        routes(setting.routes),
        inputs(setting.inputs),
        sequence(number),
        step_base(base),
        local_(setting.local),
        patience_(setting.patience),
        deadline_(deadline) {}
  ShmCall(const ShmCall&) = delete;
  ShmCall& operator=(const ShmCall&) = delete;

  int ranks() const { return local_.size(); }
  int me() const { return local_.me; }
  const Members& local() const { return local_; }

  // ---- the meeting. All below return false when the call failed: see take_failure().

  // Waits until no rank reads chunk slots for the call `last_staged` any more.
  bool wait_for_slots(uint64_t last_staged);
  // Announces this rank, with its data in `source`, and waits for the others. Fails if they call
  // something else. From here on all can read what is in the slots and small data.
  bool meet(DataSource source, uint64_t piece_bytes);
  CallLine& line(int rank) const { return segment.call_line(rank, sequence); }
  DataSource source_of(int rank) const { return CallWord::unpack(line(rank).call).source; }
  uint64_t piece_bytes_of(int rank) const;

  // ---- progress: counts of chunks of this call

  void publish_produced(uint64_t chunks);
  void publish_consumed(uint64_t chunks);
  // After this rank's last read of others' slots. Only if slots were used at all.
  void publish_finished();
  bool wait_produced(int rank, uint64_t chunks);
  bool wait_consumed(int rank, uint64_t chunks);
  bool wait_all_produced(uint64_t chunks);
  bool wait_all_consumed(uint64_t chunks);

  // Whether the group was aborted; for long stretches of work without a wait.
  bool interrupted();
  // Fails on all ranks, with `failure` unless another failure was first.
  bool fail(Failure failure);
  Failure take_failure() { return std::move(*failure_); }

  const Operation& operation;
  Segment& segment;
  const SharedRegions& regions;
  std::vector<Route>& routes;
  std::vector<const std::byte*>& inputs;
  const uint64_t sequence;
  const uint64_t step_base;

 private:
  template <typename Reached>
  bool wait_for(int first, int last, const Reached& reached);
  bool give_up(Waited how, const std::vector<int>& missing);
  bool compare_lines();

  const Members& local_;
  const Patience patience_;
  const Deadline deadline_;
  std::optional<Failure> failure_;
};

}  // namespace muster::worker
