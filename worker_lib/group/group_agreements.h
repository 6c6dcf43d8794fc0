// What the members of a group agree on, whatever dies meanwhile, and also after the group has
// failed. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/group/group_host.h"
#include "worker_lib/group/group_plan.h"
#include "worker_lib/operation.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

class Group;

class GroupAgreements {
 public:
  GroupAgreements(GroupHost& host, const GroupPlan& plan)
      : host_(host), plan_(plan), watch_(host.watch_now()) {}

  // The next agreement. Failures have no label. After one the members cannot agree any more, and
  // every call returns it. REQUIRES: not refusal_to_agree().
  Outcome<Verdict> agree(BallotKind kind, uint64_t value, std::string text, Deadline deadline,
                         std::chrono::milliseconds limit);

  GroupHost& host() const { return host_; }
  const GroupPlan& plan() const { return plan_; }
  // Null once the group is closed.
  std::shared_ptr<Watch> watch() const { return watch_.lock(); }

 private:
  GroupHost& host_;
  const GroupPlan& plan_;
  const std::weak_ptr<Watch> watch_;
  uint64_t number_ = 0;  // The last one's.
  std::optional<Failure> failure_;
};

// Why this rank cannot agree with the others; nullopt: it can. A failed group is no reason.
std::optional<Failure> refusal_to_agree(Group& group, const char* operation);

// Returns the bits that are set in the values of all members that are there.
Outcome<uint64_t> agree(Group& group, uint64_t value, const CallOptions& options);

}  // namespace muster::worker
