// The ends of a group: by abort(), its own backends, and the watch.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/group/group.h"

namespace muster::worker {

int Group::member_of(GlobalRank rank) const {
  const auto at = std::ranges::find(plan_.ranks, rank);
  return at == plan_.ranks.end() ? -1 : static_cast<int>(at - plan_.ranks.begin());
}

void Group::subscribe() {
  const std::shared_ptr<Watch> watch = watch_.lock();
  if (watch == nullptr) return;
  const int id = watch->subscribe([this](const Watch::News& news) { on_news(news); });
  const std::lock_guard lock(subscription_mutex_);
  subscription_ = id;
}

void Group::unsubscribe() {
  std::optional<int> id;
  {
    const std::lock_guard lock(subscription_mutex_);
    id.swap(subscription_);
  }
  const std::shared_ptr<Watch> watch = watch_.lock();
  if (id && watch != nullptr) watch->unsubscribe(*id);
}

void Group::abort(std::string_view reason) {
  if (!is_member()) return;
  // Other ranks print it as their error: keep it to one line, without terminal controls.
  std::string text(reason);
  std::ranges::replace_if(text, is_control, ' ');
  const Failure failure{ErrorCode::aborted,
                        fmt::format("{} aborted the group: {}", describe(members_.self()), text),
                        {members_.self().rank}};
  state_->fail(failure, GroupState::Source::own_abort);
}

// Reports to the other ranks what they cannot know otherwise, then ends the calls that are blocked
// here: in this order, since a call that returns may end the process at once.
void Group::on_failed(const Failure& failure, GroupState::Source source) {
  using Source = GroupState::Source;
  recorder_.end(ring::GroupState::failed);
  const std::shared_ptr<Watch> watch = watch_.lock();
  if (watch != nullptr && (source == Source::own || source == Source::own_abort)) {
    Failure told = failure;
    if (source == Source::own)
      told.message =
          fmt::format("{} gave up on the group: {}", describe(members_.self()), failure.message);
    watch->tell({.kind = Watch::News::Kind::aborted, .group_id = plan_.id, .failure = told});
  }
  for (const std::atomic<CollectiveQueue*>& slot : queues_) {
    if (CollectiveQueue* const queue = slot.load()) queue->backend().abort(failure);
  }
}

void Group::on_news(const Watch::News& news) {
  using Kind = Watch::News::Kind;
  if (news.kind == Kind::stopped) {
    state_->fail(news.failure, GroupState::Source::from_watch);
    return;
  }
  const int member = member_of(news.rank);
  if (news.kind == Kind::quiet && news.group_id == plan_.id) end_waits(member);
  if (member < 0 || member == members_.me) return;
  if (news.kind == Kind::died) {
    state_->fail(news.failure, GroupState::Source::from_watch);
  } else if (news.kind == Kind::left) {
    on_left(member);
  } else if (news.kind == Kind::pending) {
    on_leaving(member, news);
  } else if (news.kind == Kind::performed) {
    const auto notice = std::ranges::find(news.performed, plan_.id, &ShutdownNotice::group_id);
    if (notice != news.performed.end()) departures_.gave_notice(member, notice->performed);
    end_missing();
  } else if (news.kind == Kind::aborted && news.group_id == plan_.id) {
    state_->fail(news.failure, GroupState::Source::from_member);
  }
}

OperationCounts Group::begun() const {
  OperationCounts counts{};
  for (size_t i = 0; i < kCollectiveQueues; ++i) {
    if (const CollectiveQueue* const queue = queues_[i].load()) counts[i] = queue->begun();
  }
  return counts;
}

ShutdownNotice Group::notice() const {
  return {plan_.id, begun()};
}

void Group::end_missing() {
  const OperationCounts counts = begun();
  for (size_t i = 0; i < kCollectiveQueues; ++i) {
    const auto missing = departures_.missing_in(i, counts[i]);
    if (missing) state_->fail(*missing, GroupState::Source::from_watch);
  }
}

void Group::on_left(int member) {
  const bool came = departures_.note_left(member, begun());
  // A rank that left without ever being in this group takes no part in its set-up.
  if (!came && !made_) state_->fail(departures_.failure_of(member), GroupState::Source::from_watch);
  end_missing();
  if (transfers_.involves(member)) end_waits_later(member);
  if (departures_.has_left(-1) && transfers_.involves(-1)) end_waits_later(-1);
}

void Group::end_waits_later(int member) {
  const GlobalRank rank = member < 0 ? GlobalRank{-1} : plan_.ranks[static_cast<size_t>(member)];
  if (const std::shared_ptr<Watch> watch = watch_.lock())
    watch->remind({.kind = Watch::News::Kind::quiet, .rank = rank, .group_id = plan_.id});
}

void Group::on_leaving(int member, const Watch::News& news) {
  const auto mine = std::ranges::find(news.pending, plan_.id, &PendingOfGroup::group_id);
  departures_.note_waits(
      member, news.number,
      mine == news.pending.end() ? std::vector<PendingTransfer>() : mine->transfers);
  if (transfers_.involves(member)) end_waits_later(member);
}

// A leaving member with nothing left to send counts as gone: it may itself wait in vain.
void Group::end_waits(int member) {
  // A rank that leaves itself only stops waiting: others may still be in their transfers.
  if (closing_ || departures_.is_still_sending(member)) return;
  std::vector<PendingTransfer> with_it = transfers_.pending();
  std::erase_if(with_it, [&](const PendingTransfer& one) { return one.peer != member; });
  const auto goes_on = [&](const PendingTransfer& one) { return departures_.can_complete(one); };
  if (with_it.empty() || std::ranges::any_of(with_it, goes_on)) return;
  state_->fail(departures_.failure_of(member), GroupState::Source::from_watch);
}

bool Group::idle() {
  const auto is_idle = [](const std::atomic<CollectiveQueue*>& slot) {
    CollectiveQueue* const queue = slot.load();
    return queue == nullptr || queue->idle();
  };
  return transfers_.idle() && std::ranges::all_of(queues_, is_idle);
}

void Group::wait_collectives() {
  closing_ = true;
  for (const std::atomic<CollectiveQueue*>& slot : queues_) {
    if (CollectiveQueue* const queue = slot.load()) queue->wait_idle();
  }
}

bool Group::transfers_over() {
  return std::ranges::none_of(transfers_.pending(), [&](const PendingTransfer& one) {
    return departures_.can_complete(one);
  });
}

void Group::close() {
  unsubscribe();
  // Must come first: ending transfers below would fail the group and report that.
  state_->close();
  if (!transfers_.idle()) {
    const Failure over{ErrorCode::not_initialized,
                       "destroy_process_group() was called, and the other end has left as well",
                       {}};
    for (const std::atomic<CollectiveQueue*>& slot : queues_) {
      if (CollectiveQueue* const queue = slot.load()) queue->backend().end_transfers(over);
    }
  }
  monitored_.disconnect();
  recorder_.end(ring::GroupState::closed);
}

}  // namespace muster::worker
