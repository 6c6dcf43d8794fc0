// The public calls that find their group in the process's one job.

#include <memory>
#include <utility>

#include "muster/process_group.h"
#include "worker_lib/group/group.h"
#include "worker_lib/joining/job.h"
#include "worker_lib/raise.h"

namespace muster {

namespace {

using worker::Outcome;

std::shared_ptr<worker::Group> current_world() {
  Outcome<std::shared_ptr<worker::Job>> job = worker::require_job();
  if (!job) worker::throw_failure(job.error());
  return (*job)->world_group();
}

}  // namespace

ProcessGroup world() {
  return ProcessGroup(current_world());
}

ProcessGroup new_group(std::span<const GlobalRank> ranks, const GroupOptions& options) {
  auto group = current_world()->new_group(ranks, options);
  if (!group) worker::raise(group.error(), "new_group", options.name);
  return ProcessGroup(std::move(*group));
}

}  // namespace muster
