// A group as this process's ring shows it: its lanes, and which of them form, are ready, failed or
// closed. The lane on host memory stands for the group itself, so it is there from the start; the
// others are opened when they are first used.
//
//   forming ──▶ ready ──▶ failed ──▶ closed      Nothing goes back, except that a lane which the
//      └──────────┴─────────────────▶            group did not need so far may have to form.
//
// Owned by a Group. Any thread.
#pragma once

#include <array>
#include <mutex>

#include "worker_lib/group/group_plan.h"
#include "worker_lib/members.h"
#include "worker_lib/recorder/recorder.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

class GroupRecorder {
 public:
  // `recorder`: nullptr: there is none. A rank that is not a member records nothing.
  GroupRecorder(Recorder* recorder, const GroupPlan& plan, const Members& members);
  GroupRecorder(const GroupRecorder&) = delete;
  GroupRecorder& operator=(const GroupRecorder&) = delete;

  // `lane`: host, device or monitored. Opens it if need be.
  LaneRecorder open(Lane lane, ring::GroupState state = ring::GroupState::forming);
  void ready(Lane lane) { open(lane, ring::GroupState::ready); }
  // All lanes, also those that are opened later, are `failed` or `closed` from now on.
  void end(ring::GroupState how);

 private:
  struct RecordedLane {
    LaneRecorder recorder;
    ring::GroupState state = ring::GroupState::unused;
  };

  void become(RecordedLane& lane, ring::GroupState state) const;

  Recorder* const recorder_;
  const GroupPlan& plan_;
  const Members& members_;
  std::mutex mutex_;
  std::array<RecordedLane, 3> lanes_;
  ring::GroupState over_ = ring::GroupState::unused;
};

}  // namespace muster::worker
