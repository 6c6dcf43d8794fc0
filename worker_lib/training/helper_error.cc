#include "worker_lib/training/helper_error.h"

#include <memory>
#include <vector>

#include "worker_lib/joining/job.h"
#include "worker_lib/raise.h"

namespace muster::worker {

void raise_shared(const Failure& failure, std::string operation, std::string group) {
  // No group has this id, so no group is given up.
  constexpr const char* kSharedId = "shared";
  const std::shared_ptr<Job> job = current_job();
  const bool is_own = job != nullptr && failure.ranks == std::vector{job->world().self().rank};
  if (job != nullptr && !is_own)
    job->watch().tell(
        {.kind = Watch::News::Kind::aborted, .group_id = kSharedId, .failure = failure});
  worker::raise(failure, std::move(operation), std::move(group));
}

}  // namespace muster::worker
