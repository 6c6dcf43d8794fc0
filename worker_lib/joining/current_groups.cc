// Public calls that find their group in the process's one job.

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

// Returns the group's name for its failure; no default name if the arguments were refused.
std::string name_of_new(std::span<const GlobalRank> ranks, const GroupOptions& options,
                        const worker::Failure& failure) {
  const bool refused = failure.code == ErrorCode::invalid_argument;
  return options.name.empty() && !refused ? worker::default_group_name(ranks) : options.name;
}

}  // namespace

ProcessGroup world() {
  return ProcessGroup(worker::require_job()->world_group());
}

ProcessGroup new_group(std::span<const GlobalRank> ranks, const GroupOptions& options) {
  const std::shared_ptr<worker::Group> everyone = worker::require_job()->world_group();
  auto group = everyone->new_group(ranks, options);
  if (!group) worker::raise(group.error(), "new_group", name_of_new(ranks, options, group.error()));
  return ProcessGroup(std::move(*group));
}

}  // namespace muster
