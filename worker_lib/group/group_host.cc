#include "worker_lib/group/group_host.h"

#include <algorithm>
#include <utility>

#include "worker_lib/group/group.h"

namespace muster::worker {

namespace {

// Groups whose notice is kept after they are gone, for ranks that are still in them: a program may
// make and drop groups without end.
constexpr size_t kRetiredMax = 64;
// Above this many messages in flight none are announced, to bound the announcement.
constexpr size_t kPendingMax = 10'000;

}  // namespace

GroupHost::~GroupHost() = default;

std::shared_ptr<Watch> GroupHost::watch_now() {
  const std::lock_guard lock(mutex_);
  return watch;
}

void GroupHost::add(std::weak_ptr<Group> group) {
  const auto gone = idle_ones();
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const std::weak_ptr<Group>& known) { return known.expired(); });
  groups_.push_back(std::move(group));
}

// Returns the groups for destruction outside the lock: their destructors join threads.
std::vector<std::unique_ptr<Group>> GroupHost::idle_ones() {
  std::vector<std::unique_ptr<Group>> gone;
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Group>& group : lingering_) {
    if (!group->idle()) continue;
    note_retired(*group);
    gone.push_back(std::move(group));
  }
  std::erase(lingering_, nullptr);
  return gone;
}

// The group's progress is final only when its work is complete: queued calls have not begun yet.
void GroupHost::retire(std::unique_ptr<Group> group) {
  const bool idle = group->idle();
  const std::lock_guard lock(mutex_);
  const bool is_visited = visitor_ == std::this_thread::get_id() && !closed_;
  if (idle && !is_visited) {
    note_retired(*group);
  } else {
    lingering_.push_back(std::move(group));
  }
}

void GroupHost::visit(const std::function<void(Group&)>& look) {
  const std::lock_guard visiting(visiting_);
  std::vector<std::shared_ptr<Group>> groups;
  {
    const std::lock_guard lock(mutex_);
    visitor_ = std::this_thread::get_id();
    for (const std::weak_ptr<Group>& known : groups_) {
      if (auto group = known.lock()) groups.push_back(std::move(group));
    }
  }
  for (const std::shared_ptr<Group>& group : groups)
    look(*group);
  groups.clear();
  const std::lock_guard lock(mutex_);
  visitor_ = {};
}

void GroupHost::note_retired(const Group& group) {
  retired_.push_back(group.notice());
  if (retired_.size() > kRetiredMax) retired_.pop_front();
}

void GroupHost::keep(std::shared_ptr<Job> shrunk) {
  const std::lock_guard lock(mutex_);
  shrunk_.push_back(std::move(shrunk));
}

std::vector<std::shared_ptr<Job>> GroupHost::shrunk_jobs() {
  const std::lock_guard lock(mutex_);
  return shrunk_;
}

uint64_t GroupHost::next_number(const std::string& ranks_digest) {
  const std::lock_guard lock(mutex_);
  return ++numbers_[ranks_digest];
}

// Announces the transfers in flight, again on each change, until all have completed or cannot.
void GroupHost::wait_for_transfers(const std::vector<Group*>& groups, Watch* told) {
  std::vector<PendingOfGroup> said;
  for (uint64_t number = 1;; ++number) {
    std::vector<PendingOfGroup> pending;
    size_t count = 0;
    Group* busy = nullptr;
    for (Group* const group : groups) {
      pending.push_back(group->pending());
      count += pending.back().transfers.size();
      if (busy == nullptr && !group->transfers_over()) busy = group;
    }
    if (busy == nullptr) return;
    if (told != nullptr && count <= kPendingMax && pending != said) {
      said = pending;
      told->tell({.kind = Watch::News::Kind::pending, .number = number, .pending = pending});
    }
    busy->wait_for_transfers();
  }
}

void GroupHost::close_groups() {
  std::vector<std::shared_ptr<Group>> groups;
  std::vector<std::unique_ptr<Group>> lingering;
  std::vector<ShutdownNotice> notices;  // Includes retired groups.
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Group>& known : groups_) {
      if (auto group = known.lock()) groups.push_back(std::move(group));
    }
    lingering.swap(lingering_);
    notices.assign(retired_.begin(), retired_.end());
  }
  std::ranges::reverse(groups);
  std::vector<Group*> all;
  for (const std::unique_ptr<Group>& group : lingering)
    all.push_back(group.get());
  for (const std::shared_ptr<Group>& group : groups)
    all.push_back(group.get());
  for (Group* const group : all)
    group->wait_collectives();
  for (Group* const group : all)
    notices.push_back(group->notice());
  const std::shared_ptr<Watch> told = watch_now();
  if (told != nullptr)
    told->tell({.kind = Watch::News::Kind::performed, .performed = std::move(notices)});
  wait_for_transfers(all, told.get());
  lingering.clear();
  for (const std::shared_ptr<Group>& group : groups)
    group->close();
  // Destroys groups that a visitor kept meanwhile; later none are kept: nothing would destroy them.
  const std::lock_guard visiting(visiting_);
  const std::lock_guard lock(mutex_);
  closed_ = true;
  lingering.swap(lingering_);
  // Handles may outlive the job; the watch must not.
  watch.reset();
}

}  // namespace muster::worker
