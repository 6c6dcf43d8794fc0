#include "worker_lib/group/group_agreements.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "worker_lib/fork_guard.h"
#include "worker_lib/group/group.h"
#include "worker_lib/group/group_roll_call.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

Outcome<Verdict> GroupAgreements::agree(BallotKind kind, uint64_t value, std::string text,
                                        Deadline deadline, std::chrono::milliseconds limit) {
  if (failure_) return tl::unexpected(*failure_);
  const std::shared_ptr<Watch> watch = watch_.lock();
  if (watch == nullptr) return failed(ErrorCode::not_initialized, "this rank has left the job");
  Watch::Ballot ballot{plan_.id, {}, ++number_, kind, value, std::move(text)};
  for (const GlobalRank rank : plan_.ranks)
    ballot.members.push_back(rank.value);
  Outcome<Verdict> verdict = watch->agree(ballot, deadline);
  if (verdict && std::has_single_bit(verdict->kinds)) return verdict;
  Failure failure{ErrorCode::mismatch,
                  "some members call agree() and others shrink(): all must call the same"};
  if (!verdict) failure = std::move(verdict.error());
  if (failure.code == ErrorCode::timeout && failure.ranks.empty()) {
    failure.message = fmt::format("not all members have called it {}", within(limit));
  } else if (failure.code == ErrorCode::timeout) {
    failure.message = fmt::format("{} {}; {}", did_not_come(host_.world, failure.ranks),
                                  within(limit), look_at(failure.ranks.size()));
  }
  failure_ = std::move(failure);
  return tl::unexpected(*failure_);
}

std::optional<Failure> refusal_to_agree(Group& group, const char* operation) {
  std::optional<Failure> refused = group.refusal(operation);
  const bool has_failed = !in_forked_child() && group.is_member() && group.failure() &&
                          group.agreements().watch() != nullptr;
  return has_failed ? std::nullopt : refused;
}

Outcome<uint64_t> agree(Group& group, uint64_t value, const CallOptions& options) {
  if (auto refused = refusal_to_agree(group, "agree")) return tl::unexpected(std::move(*refused));
  const std::chrono::milliseconds limit = options.timeout.value_or(group.timeout());
  const Deadline deadline = deadline_after(std::chrono::steady_clock::now(), limit);
  return group.agreements()
      .agree(BallotKind::agree, value, {}, deadline, limit)
      .map([](const Verdict& verdict) { return verdict.value; })
      .map_error([&](Failure failure) {
        return labelled(std::move(failure), operation_label("agree", 0, group.name()));
      });
}

}  // namespace muster::worker
