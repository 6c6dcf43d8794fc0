#include "agent/hang/key_waits.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// nullopt: the siblings do not show that the number at their place is that of a rank.
std::optional<int> rank_named_at(size_t place, const AwaitedKey& key, const RankOfClient& rank_of,
                                 int world_size) {
  std::set<int> creators;
  int awaited = -1;
  for (const AwaitedKey::Sibling& sibling : key.siblings) {
    if (sibling.place != place) continue;
    const int rank = rank_of(sibling.creator);
    if (rank >= 0 && rank != sibling.number) return std::nullopt;
    if (rank >= 0) creators.insert(rank);
    awaited = sibling.awaited;
  }
  const bool is_shown = creators.size() >= static_cast<size_t>(std::clamp(world_size - 1, 1, 2));
  return is_shown && awaited < world_size ? std::optional(awaited) : std::nullopt;
}

// Returns true if the rank's waiting thread may be the one that waits at the store's port.
bool waits_at_store(const Life& life, int store_port) {
  using enum LifeState;
  if (!is_one_of(life.state, {asking, sleeping, blocked}) || !life.call) return false;
  if (life.target.ends_with(fmt::format(":{}", store_port))) return true;
  return life.target.empty() && (polls(*life.call) || is_one_of<std::string_view>(
                                                          life.call->name, {"select", "pselect6"}));
}

Class class_of_suspect(const Suspect& suspect) {
  if (suspect.ended) return Class::exited;
  if (suspect.life.state == LifeState::stopped) return Class::stopped;
  return suspect.life.state == LifeState::blocked ? Class::never_entered : Class::busy;
}

// PyTorch's client begins each key with a slash.
std::string shown_name(const std::string& key) {
  return key.starts_with('/') ? key.substr(1) : key;
}

}  // namespace

KeyWait key_wait_of(const AwaitedKeys& wait, const RankOfClient& rank_of, int world_size) {
  KeyWait known{.key = shown_name(wait.keys.front().name),
                .more = wait.keys.size() - 1 + wait.more,
                .is_barrier = wait.is_barrier,
                .exists = wait.exists};
  std::set<int> waiting;
  for (const KeyClient& client : wait.waiting) {
    const int rank = rank_of(client);
    if (rank >= 0) waiting.insert(rank);
  }
  known.waiting.assign(waiting.begin(), waiting.end());
  if (wait.is_barrier) return known;
  std::set<int> late;
  for (const AwaitedKey& key : wait.keys) {
    std::set<size_t> places;
    for (const AwaitedKey::Sibling& sibling : key.siblings)
      places.insert(sibling.place);
    for (const size_t place : places) {
      const auto rank = rank_named_at(place, key, rank_of, world_size);
      if (rank && !waiting.contains(*rank)) late.insert(*rank);
    }
  }
  known.late.assign(late.begin(), late.end());
  return known;
}

void KeyWaits::take(Instant now, KeysAwaited news, std::vector<Effect>& out) {
  news_ = std::move(news);
  std::erase_if(cases_, [&](const Case& one) {
    const auto wait = std::ranges::find(news_.waits, one.wait.key, &KeyWait::key);
    const bool is_known = wait != news_.waits.end();  // News may be lost.
    if (is_known && !wait->waiting.empty()) return false;
    if (one.number > 0)
      out.push_back(WaitEnded{.number = one.number,
                              .ranks = one.wait.late,
                              .waited = now - one.began,
                              .have_come = is_known && wait->exists});
    return true;
  });
  for (const KeyWait& wait : news_.waits) {
    if (wait.waiting.empty()) continue;
    auto known = std::ranges::find(cases_, wait.key, [](const Case& one) { return one.wait.key; });
    if (known == cases_.end()) known = cases_.insert(known, Case{.wait = wait, .began = now});
    known->wait = wait;
    std::map<int, Instant> since;
    for (const int rank : wait.waiting)
      since[rank] = known->since.contains(rank) ? known->since[rank] : now;
    known->since = std::move(since);
  }
}

std::vector<int> KeyWaits::Case::suspects(int world_size) const {
  constexpr size_t kOthersMax = 4;
  if (!wait.late.empty()) return wait.late;
  std::vector<int> others;
  for (int rank = 0; rank < world_size && others.size() <= kOthersMax; ++rank) {
    if (!since.contains(rank)) others.push_back(rank);
  }
  return others.size() > kOthersMax ? std::vector<int>() : others;
}

void KeyWaits::involve(int world_size, std::vector<int>& ranks) const {
  const size_t before = ranks.size();
  std::ranges::copy(news_.unsure, std::back_inserter(ranks));
  for (const Case& one : cases_) {
    for (const auto& [rank, since] : one.since)
      ranks.push_back(rank);
    std::ranges::copy(one.suspects(world_size), std::back_inserter(ranks));
  }
  if (ranks.size() == before) return;
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
}

void KeyWaits::report(const Facts& facts, uint64_t& last_number, std::vector<Effect>& out) {
  for (Case& one : cases_) {
    if (one.number > 0) continue;
    Finding finding = finding_of(one, facts);
    if (finding.waiting.empty()) continue;
    finding.number = one.number = ++last_number;
    out.push_back(Notice{std::move(finding)});
  }
}

// What a recorded call waits for is reported as such.
Finding KeyWaits::finding_of(const Case& one, const Facts& facts) const {
  using enum Operation::Kind;
  Finding finding;
  finding.what = Class::busy;
  for (const auto& [rank, since] : one.since) {
    const bool is_due = facts.now - std::max(since, facts.anew) >= facts.notice_after;
    if (is_due && facts.is_free(rank) && waits_at_store(facts.look_at(rank).life, news_.store_port))
      finding.waiting.push_back(rank);
  }
  if (finding.waiting.empty()) return finding;
  finding.operation = {.kind = one.wait.is_barrier ? store_barrier : store_key,
                       .key = one.wait.key,
                       .more_keys = one.wait.more};
  finding.waited = facts.now - std::max(one.began, facts.anew);
  std::vector<int> late = one.suspects(facts.world_size);
  if (one.wait.late.empty()) {
    std::erase_if(late, [&](int rank) { return !facts.is_free(rank); });
    finding.confidence = Confidence::low;
    finding.doubt = {Doubt::Why::unknown_setter, late};
  }
  for (const int rank : late) {
    finding.ranks.push_back(facts.look_at(rank));
    finding.ranks.back().what = class_of_suspect(finding.ranks.back());
  }
  if (late.size() == 1) finding.what = finding.ranks.front().what;
  return finding;
}

}  // namespace muster::hang
