#include "worker_lib/group/group_recorder.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "worker_lib/rank_runs.h"

namespace muster::worker {

namespace {

struct LaneName {
  std::string_view part_of_id;
  std::string_view part_of_name;
};
constexpr std::array<LaneName, 3> kLaneNames{LaneName{"", ""}, LaneName{"/cuda", " (cuda)"},
                                             LaneName{"/monitored", ""}};

}  // namespace

GroupRecorder::GroupRecorder(Recorder* recorder, const GroupPlan& plan, const Members& members)
    : recorder_(members.me >= 0 ? recorder : nullptr), plan_(plan), members_(members) {
  open(Lane::host);
}

LaneRecorder GroupRecorder::open(Lane lane, ring::GroupState state) {
  if (recorder_ == nullptr) return {};
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(lane);
  RecordedLane& one = lanes_[index];
  if (!one.recorder) {
    const std::string name = plan_.name + std::string(kLaneNames[index].part_of_name);
    const std::string ranks = rank_runs(plan_.ranks);
    one.recorder = recorder_->open({.id = plan_.id,
                                    .name = name,
                                    .ranks = ranks,
                                    .size = members_.size(),
                                    .own_rank = members_.me,
                                    .completion_is_late = lane == Lane::device},
                                   kLaneNames[index].part_of_id);
    one.state = ring::GroupState::forming;
  }
  become(one, state);
  return one.recorder;
}

void GroupRecorder::become(RecordedLane& lane, ring::GroupState state) const {
  state = std::max(state, over_);
  if (!lane.recorder || state == lane.state) return;
  lane.state = state;
  lane.recorder.become(state);
}

void GroupRecorder::end(ring::GroupState how) {
  const std::lock_guard lock(mutex_);
  over_ = std::max(over_, how);
  for (RecordedLane& lane : lanes_)
    become(lane, over_);
}

}  // namespace muster::worker
