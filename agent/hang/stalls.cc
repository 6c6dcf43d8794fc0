#include "agent/hang/stalls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

using Certainty = Wait::Certainty;

// Messages of one group, by group ranks and direction.
struct MessageKey {
  int group = 0;  // Index of its view.
  int own = 0;    // -1: all members.
  int peer = 0;   // -1: any.
  bool is_recv = false;

  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

class StallFinder {
 public:
  StallFinder(const std::vector<RankState>& ranks, const std::vector<GroupView>& groups,
              const StallOptions& options)
      : ranks_(ranks), groups_(groups), options_(options) {}

  Stalls find() {
    for (const GroupView& group : groups_) {
      find_forming(group);
      find_collectives(group);
    }
    find_messages();
    if (!has_old_) return {{}, {}, sorted_involved()};
    for (const Stall& stall : found_.stalls)
      involve(stall);
    found_.involved = sorted_involved();
    return std::move(found_);
  }

 private:
  // A member with a call in flight.
  struct Pending {
    uint64_t ordinal = 0;
    int place = 0;  // Group rank.
    const CallDigest* call = nullptr;
    bool is_synchronous = false;
    Instant since{};
  };
  // The progress of a member.
  struct Behind {
    uint64_t called = 0;
    LateRank late;
  };

  const RankState& state(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  LifeState life(int rank) const { return state(rank).life_at(options_.now, options_.look); }
  bool is_halted(int rank) const {
    return state(rank).code || is_one_of(life(rank), {LifeState::stopped, LifeState::gone});
  }
  bool can_wait(int rank) const { return !is_halted(rank) && !state(rank).has_failed(); }
  bool is_old(Instant since) const { return options_.now - since >= options_.min_age; }

  // The last digest of a rank that has ended may be lost.
  Standing standing_of_late(const Member& member) const {
    const RankState& rank = state(member.rank);
    return rank.code && !rank.is_last() ? Standing::silent : member.standing;
  }

  // nullopt: the rank does not wait in this call. `is_on_device`: its device waits in it instead.
  std::optional<Instant> wait_begin(int rank, bool is_synchronous, bool is_on_device,
                                    Instant called);
  void add_wait(Wait wait, Instant since);
  void add_undecided(const GroupView& group, int rank, Instant since);
  void find_forming(const GroupView& group);
  void find_collectives(const GroupView& group);
  std::vector<Pending> pending_in(const GroupView& group);
  std::vector<Behind> behind_in(const GroupView& group) const;
  std::vector<const Member*> halted_in(const GroupView& group) const;
  void add_collective(Stall stall, std::span<const Pending> pending, bool somebody_is_late);
  void find_messages();
  void index_messages();
  uint64_t messages_called(const MessageKey& key) const;
  int group_of(const RankDigest& digest, const MessageDigest& message) const;
  void find_message(int rank, int group, const MessageDigest& message);
  void find_any(Stall& stall, int group, int own) const;
  bool find_peer(Stall& stall, Wait& wait, int group, int own, const MessageDigest& message) const;
  void involve(const Stall& stall);
  std::vector<int> sorted_involved();

  const std::vector<RankState>& ranks_;
  const std::vector<GroupView>& groups_;
  const StallOptions options_;
  Stalls found_;
  bool has_old_ = false;
  std::map<MessageKey, uint64_t> messages_;  // Filled when the first message waits.
  std::vector<int> involved_;
};

std::optional<Instant> StallFinder::wait_begin(int rank, bool is_synchronous, bool is_on_device,
                                               Instant called) {
  const Instant since = std::min(called, options_.now);
  if (is_synchronous) return since;
  if (is_old(since)) involved_.push_back(rank);
  if (is_on_device) return since;
  if (!is_one_of(life(rank), {LifeState::blocked, LifeState::asking})) return std::nullopt;
  return std::max(since, state(rank).life_since);
}

// Adds to the last stall.
void StallFinder::add_wait(Wait wait, Instant since) {
  Stall& stall = found_.stalls.back();
  wait.stall = static_cast<int>(found_.stalls.size()) - 1;
  const bool is_first = stall.waiting.empty();
  stall.waiting.push_back(wait.rank);
  if (is_first || (since < stall.since) != stall.key.all_called) stall.since = since;
  found_.waits.push_back(wait);
  has_old_ |= is_old(since);
}

// Adds a wait for unknown ranks: none is blamed for it, nor this rank for others that wait for it.
void StallFinder::add_undecided(const GroupView& group, int rank, Instant since) {
  Stall stall;
  stall.key = {.group = *group.key, .rank = rank};
  stall.group = &group;
  stall.hides_a_member = true;
  found_.stalls.push_back(std::move(stall));
  add_wait({.rank = rank}, since);
}

// ---- groups that are being formed

void StallFinder::find_forming(const GroupView& group) {
  const auto forms = [this](const Member& member) {
    return member.digest != nullptr && member.digest->phase == GroupPhase::forming &&
           can_wait(member.rank);
  };
  if (std::ranges::none_of(group.members, forms)) return;
  if (group.has_failed) {
    for (const Member& member : group.members) {
      if (forms(member)) add_undecided(group, member.rank, member.digest->since);
    }
    return;
  }
  Stall stall;
  stall.key = {.group = *group.key, .kind = StallKey::Kind::forming};
  stall.group = &group;
  stall.hides_a_member = group.has_unknown;
  for (const Member& member : group.members) {
    if (member.rank < 0 || member.standing == Standing::left) continue;
    const bool is_inside = member.digest != nullptr && member.digest->phase == GroupPhase::forming;
    if (member.digest == nullptr || (is_inside && is_halted(member.rank)))
      stall.late.push_back({member.rank, standing_of_late(member), is_inside});
  }
  stall.key.all_called = stall.late.empty() && !stall.hides_a_member;
  found_.stalls.push_back(std::move(stall));
  for (const Member& member : group.members) {
    if (!forms(member)) continue;
    if (found_.stalls.back().key.all_called) found_.stalls.back().unfinished.push_back(member.rank);
    add_wait({.rank = member.rank, .is_synchronous = true, .certainty = Certainty::stall},
             std::min(member.digest->since, options_.now));
  }
  std::ranges::sort(found_.stalls.back().waiting);
}

// ---- collectives

std::vector<StallFinder::Pending> StallFinder::pending_in(const GroupView& group) {
  std::vector<Pending> pending;
  uint64_t last_awaited = 0;
  for (size_t i = 0; i < group.members.size(); ++i) {
    const Member& member = group.members[i];
    if (!member.is_ready()) continue;
    const GroupDigest& digest = *member.digest;
    if (digest.completed >= digest.called || digest.completion_is_unknown) continue;
    if (!can_wait(member.rank)) continue;
    const uint64_t ordinal = digest.completed + 1;
    const CallDigest* const call = find_call(digest, ordinal);
    const bool is_synchronous = call != nullptr && call->call.is_synchronous;
    const Instant called = call == nullptr ? state(member.rank).unchanged_since : call->called;
    if (is_old(called)) last_awaited = std::max(last_awaited, ordinal);
    const auto since = wait_begin(member.rank, is_synchronous, digest.is_on_device, called);
    if (!since) continue;
    if (group.has_failed || member.standing != Standing::known) {
      add_undecided(group, member.rank, *since);
    } else {
      pending.push_back({ordinal, static_cast<int>(i), call, is_synchronous, *since});
    }
  }
  // Samples late ranks early: whether an asynchronous call is waited for shows later, and samples
  // take time too.
  for (const Member& member : group.members) {
    if (member.rank >= 0 && member.called() < last_awaited) involved_.push_back(member.rank);
  }
  std::ranges::sort(pending, [](const Pending& a, const Pending& b) {
    return std::tie(a.ordinal, a.place) < std::tie(b.ordinal, b.place);
  });
  return pending;
}

// Members, the furthest behind first.
std::vector<StallFinder::Behind> StallFinder::behind_in(const GroupView& group) const {
  std::vector<Behind> behind;
  for (const Member& member : group.members) {
    if (member.rank < 0 || member.standing == Standing::left) continue;
    behind.push_back({member.called(), {member.rank, standing_of_late(member)}});
  }
  std::ranges::sort(behind, [](const Behind& a, const Behind& b) {
    return std::tie(a.called, a.late.rank) < std::tie(b.called, b.late.rank);
  });
  return behind;
}

// Members that have made calls and are stopped or gone inside them.
std::vector<const Member*> StallFinder::halted_in(const GroupView& group) const {
  std::vector<const Member*> halted;
  for (const Member& member : group.members) {
    if (member.standing != Standing::known || !member.is_ready()) continue;
    // A rank that has ended here did so well (a failure ends the watch) and has done its part.
    if (!is_halted(member.rank) || state(member.rank).code) continue;
    // Completions may be unknown.
    if (member.digest->completion_is_late || member.digest->completion_is_unknown) continue;
    if (member.completed() < member.called()) halted.push_back(&member);
  }
  return halted;
}

// Sets what a member needs to end its call. A root that gives waits for no rank; the others need
// not wait for a root that takes.
void note_needs(Wait& wait, const GroupView& group, int place, const CallDigest& made) {
  const ring::Call& call = made.call;
  const ring::RootRole root_role = row_of(call.kind).root;
  if (needs_all(call)) wait.certainty = Certainty::stall;
  if (call.count == 0 || call.is_v) return;
  if (root_role == ring::RootRole::takes && call.root == place) wait.certainty = Certainty::stall;
  if (root_role != ring::RootRole::gives || call.root < 0 || call.root == place) return;
  const auto root = static_cast<size_t>(call.root);
  if (root >= group.members.size()) return;
  const Member& giver = group.members[root];
  if (giver.called() >= made.ordinal || giver.rank < 0 ||
      !is_one_of(giver.standing, {Standing::known, Standing::absent}))
    return;
  wait.certainty = Certainty::one_member;
  wait.member = giver.rank;
}

void StallFinder::add_collective(Stall stall, std::span<const Pending> pending,
                                 bool somebody_is_late) {
  const uint64_t ordinal = stall.key.ordinal;
  const GroupView& group = *stall.group;
  stall.key.all_called = !somebody_is_late && !stall.hides_a_member;
  if (stall.key.all_called) {
    for (const Member& member : group.members) {
      if (member.standing != Standing::known) continue;
      if (member.completed() < ordinal) stall.unfinished.push_back(member.rank);
      const bool is_seen = member.digest != nullptr && !member.digest->completion_is_unseen;
      stall.has_finished |= is_seen && member.completed() >= ordinal;
    }
    std::ranges::sort(stall.unfinished);
  }
  found_.stalls.push_back(std::move(stall));
  for (const Pending& one : pending) {
    Stall& added = found_.stalls.back();
    if (one.call != nullptr && added.call.kind == ring::CallKind::unknown)
      added.call = one.call->call;
    Wait wait{.rank = group.members[static_cast<size_t>(one.place)].rank,
              .is_synchronous = one.is_synchronous};
    if (one.call != nullptr) note_needs(wait, group, one.place, *one.call);
    add_wait(wait, one.since);
  }
  std::ranges::sort(found_.stalls.back().waiting);
}

void StallFinder::find_collectives(const GroupView& group) {
  std::vector<Pending> pending = pending_in(group);
  if (pending.empty()) return;
  const std::vector<Behind> behind = behind_in(group);
  std::vector<const Member*> halted = halted_in(group);
  auto next = behind.begin();
  int below = -1;
  for (auto first = pending.begin(); first != pending.end();) {
    const uint64_t ordinal = first->ordinal;
    auto last = std::ranges::upper_bound(first, pending.end(), ordinal, {}, &Pending::ordinal);
    std::span<Pending> here(first, last);
    first = last;
    Stall stall;
    stall.key = {.group = *group.key, .ordinal = ordinal};
    stall.group = &group;
    stall.below = below;
    stall.hides_a_member = group.has_unknown;
    for (; next != behind.end() && next->called < ordinal; ++next)
      stall.late.push_back(next->late);
    std::erase_if(halted, [&](const Member* member) {
      const bool is_inside = member->called() >= ordinal && member->completed() < ordinal;
      if (is_inside) stall.late.push_back({member->rank, member->standing, true});
      return is_inside;
    });
    const bool somebody_is_late = next != behind.begin() || !stall.late.empty();
    // A late completion leaves a call pending: it may be complete, and the rank blocked elsewhere.
    if (!somebody_is_late) {
      const auto dropped = std::ranges::partition(here, [&](const Pending& one) {
        const Member& member = group.members[static_cast<size_t>(one.place)];
        return one.is_synchronous || !member.digest->completion_is_late;
      });
      here = here.first(here.size() - dropped.size());
      std::ranges::sort(here, {}, &Pending::place);
    }
    if (here.empty()) continue;
    add_collective(std::move(stall), here, somebody_is_late);
    if (somebody_is_late) below = static_cast<int>(found_.stalls.size()) - 1;
  }
}

// ---- messages

// -1: no digest shows it.
int StallFinder::group_of(const RankDigest& digest, const MessageDigest& message) const {
  const GroupKey key{message.group, digest.generation};
  const auto group = std::ranges::lower_bound(
      groups_, key, {}, [](const GroupView& view) -> const GroupKey& { return *view.key; });
  if (group == groups_.end() || *group->key != key) return -1;
  return static_cast<int>(group - groups_.begin());
}

void StallFinder::find_messages() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& digest = ranks_[rank].digest;
    if (!digest || !can_wait(static_cast<int>(rank))) continue;
    for (const MessageDigest& message : digest->messages) {
      if (message.completed >= message.called) continue;
      const int group = group_of(*digest, message);
      if (group >= 0) find_message(static_cast<int>(rank), group, message);
    }
  }
}

void StallFinder::index_messages() {
  for (const RankState& rank : ranks_) {
    if (!rank.digest) continue;
    for (const MessageDigest& message : rank.digest->messages) {
      const int group = group_of(*rank.digest, message);
      const GroupDigest* const own = find_group(*rank.digest, message.group);
      if (group < 0 || own == nullptr) continue;
      messages_[{group, own->own_rank, message.peer, message.is_recv}] = message.called;
      messages_[{group, -1, message.peer, message.is_recv}] += message.called;
    }
  }
}

uint64_t StallFinder::messages_called(const MessageKey& key) const {
  const auto found = messages_.find(key);
  return found == messages_.end() ? 0 : found->second;
}

void StallFinder::find_message(int rank, int group, const MessageDigest& message) {
  const GroupView& view = groups_[static_cast<size_t>(group)];
  const GroupDigest* const own = find_group(*state(rank).digest, message.group);
  if (own == nullptr || own->phase != GroupPhase::ready) return;
  if (message.peer == own->own_rank || message.peer >= own->size) return;
  if (is_old(message.called_at) && message.peer >= 0)
    involved_.push_back(view.members[static_cast<size_t>(message.peer)].rank);
  const auto since =
      wait_begin(rank, message.is_synchronous, message.is_on_device, message.called_at);
  if (!since) return;
  const bool is_sound = view.members[static_cast<size_t>(own->own_rank)].digest == own;
  if (view.has_failed || !is_sound) return add_undecided(view, rank, *since);
  if (messages_.empty()) index_messages();
  Stall stall;
  stall.group = &view;
  stall.key = {.group = *view.key,
               .kind = StallKey::Kind::message,
               .ordinal = message.completed + 1,
               .rank = rank,
               .peer = message.peer,
               .is_recv = message.is_recv};
  stall.call.kind = message.is_recv ? ring::CallKind::recv : ring::CallKind::send;
  Wait wait{.rank = rank, .is_synchronous = message.is_synchronous};
  if (message.peer < 0) {
    find_any(stall, group, own->own_rank);
    wait.certainty = Certainty::stall;
  } else if (!find_peer(stall, wait, group, own->own_rank, message)) {
    return add_undecided(view, rank, *since);
  }
  if (stall.key.all_called) stall.unfinished = {rank};
  found_.stalls.push_back(std::move(stall));
  add_wait(wait, *since);
}

// No rank is late if more was sent to this one than it has received: a tag may differ.
void StallFinder::find_any(Stall& stall, int group, int own) const {
  uint64_t received = 0;
  for (const MessageDigest& message : state(stall.key.rank).digest->messages) {
    if (message.group == stall.key.group.id && message.is_recv) received += message.completed;
  }
  stall.key.all_called = messages_called({group, -1, own, false}) > received;
  stall.is_any = !stall.key.all_called;
  stall.hides_a_member = stall.group->has_unknown;
}

// Returns false if nothing is known of the peer.
bool StallFinder::find_peer(Stall& stall, Wait& wait, int group, int own,
                            const MessageDigest& message) const {
  const Member& peer = stall.group->members[static_cast<size_t>(message.peer)];
  if (peer.rank < 0 || peer.standing == Standing::left) return false;
  // A receive of the peer from any rank may be this message's.
  const uint64_t from_any = message.is_recv ? 0 : messages_called({group, message.peer, -1, true});
  const uint64_t called = messages_called({group, message.peer, own, !message.is_recv}) + from_any;
  stall.key.all_called = called >= stall.key.ordinal;
  if (stall.key.all_called) return true;
  stall.late.push_back({peer.rank, standing_of_late(peer)});
  if (from_any == 0) wait.certainty = Certainty::stall;
  return true;
}

// ---- ranks to sample

void StallFinder::involve(const Stall& stall) {
  if (!is_old(stall.since)) return;
  involved_.insert(involved_.end(), stall.waiting.begin(), stall.waiting.end());
  involved_.insert(involved_.end(), stall.unfinished.begin(), stall.unfinished.end());
  for (const Stall* one = &stall; one != nullptr;
       one = one->below < 0 ? nullptr : &found_.stalls[static_cast<size_t>(one->below)]) {
    for (const LateRank& late : one->late)
      involved_.push_back(late.rank);
    if (one != &stall && is_old(one->since)) break;  // The rest is involved by that one.
  }
}

std::vector<int> StallFinder::sorted_involved() {
  std::erase_if(involved_, [this](int rank) { return rank < 0 || state(rank).code; });
  std::ranges::sort(involved_);
  const auto repeated = std::ranges::unique(involved_);
  involved_.erase(repeated.begin(), repeated.end());
  return std::move(involved_);
}

}  // namespace

const MessageDigest* find_message(const RankDigest& digest, const StallKey& key) {
  const auto found = std::ranges::find_if(digest.messages, [&](const MessageDigest& message) {
    return message.group == key.group.id && message.peer == key.peer &&
           message.is_recv == key.is_recv;
  });
  return found == digest.messages.end() ? nullptr : &*found;
}

Stalls find_stalls(const std::vector<RankState>& ranks, const std::vector<GroupView>& groups,
                   const StallOptions& options) {
  return StallFinder(ranks, groups, options).find();
}

}  // namespace muster::hang
