// Answers other ranks' queries about this rank's progress, and queries them after a time-out.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "worker_lib/failure_reports.h"
#include "worker_lib/group/group.h"
#include "worker_lib/stragglers/straggler_search.h"

namespace muster::worker {

namespace {

// Recent failures in an answer: any of them may keep the rank from a call.
constexpr size_t kTroublesMax = 8;
// Limit for answers of ranks that should have passed on the end of another.
constexpr std::chrono::milliseconds kNewsAwaited{1000};

std::vector<int> job_ranks(const std::vector<GlobalRank>& ranks, GlobalRank but = {}) {
  std::vector<int> made;
  for (const GlobalRank rank : ranks) {
    if (rank != but) made.push_back(rank.value);
  }
  return made;
}

Trouble trouble_of(std::vector<int> origin, int64_t known_ns) {
  const auto age = std::chrono::nanoseconds(new_failure_time() - known_ns);
  return {std::move(origin), std::max(std::chrono::duration_cast<std::chrono::milliseconds>(age),
                                      std::chrono::milliseconds::zero())};
}

// Returns the ranks through which reports of those ranks' ends reach this one (see watch.h).
std::vector<int> messengers_of(const std::vector<int>& ranks, const Members& world) {
  const std::vector<int> firsts = firsts_of_nodes(world);
  const int own_first = firsts[static_cast<size_t>(world.me)];
  std::set<int> through{own_first};
  for (const int rank : ranks) {
    const int first = firsts[static_cast<size_t>(rank)];
    if (first != own_first) through.insert({0, first});
  }
  through.erase(world.me);
  return {through.begin(), through.end()};
}

// Resolves a store that does not answer: queries the rank that serves it.
Failure ask_store_host(const Failure& met, GlobalRank store_host, const StragglerSearch& setting) {
  if (store_host.value == setting.world.me) return met;
  const StragglerQuery question{
      .from_anybody = true, .suspects = {store_host.value}, .world_size = setting.world.size()};
  Failure found = name_stragglers(met, question, setting);
  if (found.ranks.empty()) return met;
  found.code = ErrorCode::rendezvous;
  found.message += ", and serves the job's store: " + met.message;
  return found;
}

// Resolves a peer's unexplained end: queries its waiters and those that should have reported why.
Failure look_behind_end(const Failure& met, StragglerQuery question, StragglerSearch setting) {
  question.limit = setting.limit = kNewsAwaited;
  Failure found = name_stragglers(met, question, setting);
  if (found.ranks == met.ranks) return met;
  found.message += "; " + met.message;
  return found;
}

}  // namespace

// Fills in the lanes of the calls on one kind of memory and of that backend's set-up.
void Group::note_calls(size_t index, GroupProgress& progress) const {
  constexpr std::array kSetUp{Lane::host_set_up, Lane::device_set_up};
  LaneProgress& set_up = progress.lane(kSetUp[index]);
  const CollectiveQueue* const queue = queues_[index].load(std::memory_order_acquire);
  const bool is_made = queue != nullptr;
  set_up.last = plan_.made_by;
  set_up.begun = is_made || setting_up_[index].load() ? 1 : 0;
  set_up.ended = is_made ? 1 : 0;
  set_up.is_held = true;
  set_up.awaited = job_ranks(plan_.ranks, members_.self().rank);
  if (!is_made) return;
  LaneProgress& lane = progress.lane(index == 0 ? Lane::host : Lane::device);
  lane = queue->progress();
  std::vector<int> awaited;
  for (const int member : lane.awaited)
    awaited.push_back(members_[member].rank.value);
  lane.awaited = awaited.empty() ? set_up.awaited : std::move(awaited);
}

GroupProgress Group::progress() {
  GroupProgress progress{.id = plan_.id, .name = plan_.name};
  for (size_t i = 0; i < kCollectiveQueues; ++i)
    note_calls(i, progress);
  LaneProgress& monitored = progress.lane(Lane::monitored);
  monitored = monitored_.progress();
  monitored.awaited = job_ranks(plan_.ranks, members_.self().rank);
  for (const PendingTransfer& one : transfers_.awaited()) {
    if (one.peer < 0) progress.members = monitored.awaited;
    progress.transfers.push_back({one.kind, one.peer < 0 ? -1 : members_[one.peer].rank.value});
  }
  return progress;
}

// Returns the group's failure, which this rank may not have reported to its program yet.
std::optional<Trouble> Group::trouble() const {
  const std::optional<Failure> failure = state_->failure();
  if (!failure || failure->ranks.empty()) return std::nullopt;
  return trouble_of(job_ranks(failure->ranks), failure->known_ns);
}

RankProgress GroupHost::progress() {
  RankProgress progress;
  std::vector<Trouble>& troubles = progress.troubles;
  visit([&](Group& group) {
    progress.groups.push_back(group.progress());
    if (auto trouble = group.trouble()) troubles.push_back(std::move(*trouble));
  });
  // A failure reported to the program, which may be about to exit because of it.
  const auto told = reports != nullptr ? reports->last() : std::nullopt;
  if (told && !told->origin.empty()) troubles.push_back(trouble_of(told->origin, told->time_ns));
  std::ranges::sort(troubles, {}, &Trouble::age);
  if (troubles.size() > kTroublesMax) troubles.resize(kTroublesMax);
  return progress;
}

// Must not capture the group: Work objects that outlive it may fail later.
GroupState::NameStragglers Group::asker() const {
  return [host = host_, id = plan_.id, ranks = plan_.ranks, me = members_.me](
             const Failure& suspected, const GroupState::Call& call,
             const std::function<bool()>& over) -> Failure {
    const std::shared_ptr<Watch> watch = host->watch_now();
    if (watch == nullptr || me < 0) return suspected;
    if (const std::optional<Failure> deafness = watch->deafness()) return *deafness;
    const StragglerSearch setting{.world = host->world,
                                  .watch = *watch,
                                  .own = [&] { return host->progress(); },
                                  .over = over};
    StragglerQuery question{.group_id = id,
                            .lane = call.lane,
                            .number = call.is_message ? 0 : call.number,
                            .from_anybody = call.from_anybody,
                            .world_size = host->world.size(),
                            .members = job_ranks(ranks),
                            .limit = call.limit};
    const RankProgress own = setting.own();
    const GroupProgress* const group = own.group(id);
    question.is_behind = !call.is_message && call.number == 0;
    if (group != nullptr && question.is_behind) question.number = group->lane(call.lane).ended + 1;
    if (suspected.code == ErrorCode::rendezvous)
      return host->store_host ? ask_store_host(suspected, *host->store_host, setting) : suspected;
    question.suspects = job_ranks(suspected.ranks, ranks[static_cast<size_t>(me)]);
    if (question.suspects.empty() && group != nullptr && !call.is_message)
      question.suspects = group->lane(call.lane).awaited;
    if (question.suspects.empty())
      question.suspects = job_ranks(ranks, ranks[static_cast<size_t>(me)]);
    question.messengers = messengers_of(question.suspects, host->world);
    if (suspected.code == ErrorCode::peer_failed)
      return look_behind_end(suspected, question, setting);
    return worker::name_stragglers(suspected, question, setting);
  };
}

}  // namespace muster::worker
