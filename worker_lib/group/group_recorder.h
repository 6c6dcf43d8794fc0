// A group in this process's ring: its lanes and their states. The lane on host memory stands for
// the group itself, so it is there from the start; the others are opened on first use.
//
//   forming ──▶ ready ──▶ failed ──▶ closed      also: forming ──▶ failed
//                                                      forming, ready ──▶ closed directly
//
// No lane goes back, except the one on host memory of a group that began on GPUs: it is ready with
// the group, and forms on its first use.
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
  // `recorder` may be nullptr. A rank that is not a member records nothing.
  GroupRecorder(Recorder* recorder, const GroupPlan& plan, const Members& members);
  GroupRecorder(const GroupRecorder&) = delete;
  GroupRecorder& operator=(const GroupRecorder&) = delete;

  // Opens the lane (host, device or monitored) if not open, and sets its state.
  LaneRecorder open(Lane lane, ring::GroupState state = ring::GroupState::forming);
  void ready(Lane lane) { open(lane, ring::GroupState::ready); }
  // Makes all lanes, even those opened later, `failed` or `closed`.
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
