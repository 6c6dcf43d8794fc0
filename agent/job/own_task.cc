#include "agent/job/own_task.h"

#include <vector>

#include "agent/meeting/launch_traces.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr int kNodeTries = 20;
constexpr auto kNodePause = std::chrono::milliseconds(100);

}  // namespace

void OwnTask::find(const membership::Round& round, std::function<void(Result<void>)> next) {
  if (!task_ || task_->nodes > 0) return next({});
  ask(round, kNodeTries, next);
}

void OwnTask::ask(const membership::Round& round, int tries_left,
                  const std::function<void(Result<void>)>& next) {
  if (!job_.has_workers()) return;
  if (tries_left == 0) {
    return next(
        fail(ExitCode::rendezvous,
             "the host of the job does not say which tasks share this node: their machines' "
             "host names have to differ; start one task on each node"));
  }
  job_.find_nodes([this, round, tries_left, next](const std::vector<membership::NodeLine>& lines) {
    if (job_.is_ending()) return;
    if (const auto place = place_on_nodes(lines, round.node_rank, round.nodes);
        place && place->sharing == task_->local_size) {
      task_->node = place->node;
      task_->nodes = place->nodes;
      return next({});
    }
    call_after(pause_, kNodePause,
               [this, round, tries_left, next] { ask(round, tries_left - 1, next); });
  });
}

RoundView OwnTask::told(RoundView view) const {
  if (!task_) return view;
  view.node_rank = task_->node;
  view.nodes = task_->nodes;
  view.local_world_size = task_->local_size;
  return view;
}

}  // namespace muster
