// The public calls that find their group in the process's one job.

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "muster/process_group.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_plan.h"
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

// The group's name in its failure. If the arguments were refused, there is no default name.
std::string name_of_new(std::span<const GlobalRank> ranks, const GroupOptions& options,
                        const worker::Failure& failure) {
  const bool refused = failure.code == ErrorCode::invalid_argument;
  return options.name.empty() && !refused ? worker::default_group_name(ranks) : options.name;
}

}  // namespace

ProcessGroup world() {
  return ProcessGroup(current_world());
}

ProcessGroup new_group(std::span<const GlobalRank> ranks, const GroupOptions& options) {
  auto group = current_world()->new_group(ranks, options);
  if (!group) worker::raise(group.error(), "new_group", name_of_new(ranks, options, group.error()));
  return ProcessGroup(std::move(*group));
}

}  // namespace muster
