#include "agent/hang/mismatch.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/ring/ring_layout.h"

namespace muster::hang {
namespace {

// Per group; older differences are left to the hashes.
constexpr size_t kOrdinalsKept = 128;
constexpr size_t kHashesKept = 64;
// No majority is sought among more different calls.
constexpr size_t kCampsMax = 64;
constexpr uint64_t kOrderWindow = 16;

bool agree(const ring::Call& a, const ring::Call& b) {
  return ring::difference_of(a, b) == ring::Difference::none;
}

// Returns true if they agree, and every other call agrees with both or neither.
bool are_alike(const ring::Call& a, const ring::Call& b) {
  const auto known = [](const ring::Call& call) {
    return std::tuple(call.kind, call.type == ring::ElementType::unknown,
                      call.reduction == ring::Reduction::unknown, call.root < 0, call.is_v);
  };
  return known(a) == known(b) && agree(a, b);
}

template <typename Made>
size_t count_ranks(const std::vector<Made>& made) {
  size_t count = 0;
  for (const Made& one : made)
    count += one.ranks.size();
  return count;
}

template <typename Key, typename Value>
void keep_newest(std::map<Key, Value>& entries, size_t most) {
  while (entries.size() > most)
    entries.erase(entries.begin());
}

template <typename Made>
void remove_rank(std::map<uint64_t, std::vector<Made>>& entries, int rank, uint64_t after) {
  for (auto entry = entries.upper_bound(after); entry != entries.end(); ++entry) {
    for (Made& made : entry->second)
      std::erase(made.ranks, rank);
    std::erase_if(entry->second, [](const Made& made) { return made.ranks.empty(); });
  }
  std::erase_if(entries, [](const auto& entry) { return entry.second.empty(); });
}

// The first ordinal at which two entries differ; 0: none.
template <typename Made>
uint64_t first_difference(const std::map<uint64_t, std::vector<Made>>& entries,
                          auto&& differ_from) {
  for (const auto& [ordinal, made] : entries) {
    for (size_t i = 1; i < made.size(); ++i) {
      for (size_t j = 0; j < std::min(i, kCampsMax); ++j) {
        if (differ_from(made[i], made[j])) return ordinal;
      }
    }
  }
  return 0;
}

// Returns true if both made the same calls from `ordinal` on, in another order.
bool differ_in_order_only(const GroupDigest& a, const GroupDigest& b, uint64_t ordinal) {
  std::vector<ring::Call> only_a;
  std::vector<ring::Call> only_b;
  const auto cross_out = [](std::vector<ring::Call>& own, std::vector<ring::Call>& other,
                            const ring::Call& call) {
    const auto same =
        std::ranges::find_if(other, [&](const auto& one) { return agree(one, call); });
    if (same == other.end()) {
      own.push_back(call);
    } else {
      other.erase(same);
    }
  };
  for (uint64_t i = ordinal; i < ordinal + kOrderWindow; ++i) {
    const CallDigest* const call_a = find_call(a, i);
    const CallDigest* const call_b = find_call(b, i);
    if (call_a == nullptr || call_b == nullptr) return false;
    cross_out(only_a, only_b, call_a->call);
    cross_out(only_b, only_a, call_b->call);
    if (only_a.empty() && only_b.empty()) return true;
  }
  return false;
}

}  // namespace

void CallComparison::note(const RankDigest& digest, Instant now) {
  for (const GroupDigest& group : digest.groups) {
    Compared& compared = groups_[GroupKey{group.id, digest.generation}];
    compared.size = static_cast<size_t>(group.size);
    compared.is_closed |= digest.has_failed || group.phase == GroupPhase::failed;
    if (compared.is_closed) continue;
    note_calls(compared, digest.rank, group, now);
    note_hashes(compared, digest, group, now);
  }
}

void CallComparison::note_calls(Compared& compared, int rank, const GroupDigest& group,
                                Instant now) {
  Newest& newest = compared.newest[rank];
  if (group.called < newest.ordinal) take_back(compared, rank, group.called);
  for (const CallDigest& made : group.calls) {
    ring::Call call = made.call;
    call.is_synchronous = false;
    if (made.ordinal == newest.ordinal && call != newest.call)
      take_back(compared, rank, newest.ordinal - 1);
    if (made.ordinal <= newest.ordinal || made.ordinal > group.called) continue;
    newest.ordinal = made.ordinal;
    newest.call = call;
    add_call(compared, rank, made.ordinal, call, now);
  }
  keep_newest(compared.calls, kOrdinalsKept);
  while (compared.agreed.size() > kOrdinalsKept)
    compared.agreed.erase(compared.agreed.begin());
}

void CallComparison::note_hashes(Compared& compared, const RankDigest& digest,
                                 const GroupDigest& group, Instant now) {
  Newest& newest = compared.newest[digest.rank];
  for (const HashDigest& hash : group.hashes) {
    if (hash.ordinal == newest.hash_ordinal && hash.hash != newest.hash) {
      remove_rank(compared.hashes, digest.rank, hash.ordinal - 1);
      newest.hash_ordinal = hash.ordinal - 1;
    }
    if (hash.ordinal <= newest.hash_ordinal || hash.ordinal > group.called) continue;
    newest.hash_ordinal = hash.ordinal;
    newest.hash = hash.hash;
    add_hash(compared, digest.rank, digest.source, hash, now);
  }
  keep_newest(compared.hashes, kHashesKept);
}

// Forgets a rank's calls after `after`, which were refused.
void CallComparison::take_back(Compared& compared, int rank, uint64_t after) {
  Newest& newest = compared.newest[rank];
  remove_rank(compared.calls, rank, after);
  newest.ordinal = after;
  if (newest.hash_ordinal <= after) return;
  remove_rank(compared.hashes, rank, after);
  newest.hash_ordinal = after;
}

void CallComparison::add_call(Compared& compared, int rank, uint64_t ordinal,
                              const ring::Call& call, Instant now) {
  std::vector<Made>& made = compared.calls[ordinal];
  const auto same =
      std::ranges::find_if(made, [&](const Made& one) { return are_alike(one.call, call); });
  if (same != made.end()) {
    same->ranks.push_back(rank);
  } else {
    const auto differs = [&](const Made& one) { return !agree(one.call, call); };
    if (!compared.differs_since && std::ranges::any_of(made, differs)) compared.differs_since = now;
    made.push_back({call, {rank}});
  }
  if (compared.differs_since || count_ranks(made) < compared.size) return;
  compared.agreed.insert(ordinal);
  compared.calls.erase(ordinal);
}

void CallComparison::add_hash(Compared& compared, int rank, int source, const HashDigest& hash,
                              Instant now) {
  std::vector<Hashed>& hashed = compared.hashes[hash.ordinal];
  const auto same = std::ranges::find_if(
      hashed, [&](const Hashed& one) { return one.source == source && one.hash == hash.hash; });
  if (same != hashed.end()) {
    same->ranks.push_back(rank);
  } else {
    const auto differs = [&](const Hashed& one) { return one.source == source; };
    if (!compared.differs_since && std::ranges::any_of(hashed, differs))
      compared.differs_since = now;
    hashed.push_back({source, hash.hash, {rank}});
  }
  if (compared.differs_since || count_ranks(hashed) < compared.size) return;
  compared.hashes_agree_to = std::max(compared.hashes_agree_to, hash.ordinal);
  compared.hashes.erase(hash.ordinal);
}

std::vector<Mismatch> CallComparison::take(const std::vector<RankState>& ranks, Instant now,
                                           bool at_once) {
  std::vector<Mismatch> found;
  for (auto& [key, compared] : groups_) {
    if (!compared.differs_since || compared.is_closed) continue;
    if (auto mismatch = judge(key, compared, ranks, now, at_once)) {
      compared.is_closed = true;
      compared.calls.clear();
      compared.hashes.clear();
      found.push_back(*std::move(mismatch));
    }
  }
  return found;
}

std::optional<Mismatch> CallComparison::judge(const GroupKey& key, Compared& compared,
                                              const std::vector<RankState>& ranks, Instant now,
                                              bool at_once) {
  const uint64_t of_calls = first_difference(
      compared.calls, [](const Made& a, const Made& b) { return !agree(a.call, b.call); });
  const uint64_t of_hashes = first_difference(
      compared.hashes,
      [](const Hashed& a, const Hashed& b) { return a.source == b.source && a.hash != b.hash; });
  if (of_calls == 0 && of_hashes == 0) {  // The difference was taken back.
    compared.differs_since.reset();
    return std::nullopt;
  }
  const bool by_calls = of_calls > 0 && (of_hashes == 0 || of_calls <= of_hashes);
  const uint64_t ordinal = compared.differs_at = by_calls ? of_calls : of_hashes;
  auto mismatch = by_calls ? judge_calls(compared, ordinal) : judge_hashes(compared, ordinal);
  if (!mismatch) {  // The hashes are wrong: all calls that they cover agree.
    compared.hashes.clear();
    return std::nullopt;
  }
  const size_t made =
      by_calls ? count_ranks(compared.calls[ordinal]) : count_ranks(compared.hashes[ordinal]);
  const bool is_settled = made == compared.size || now - *compared.differs_since >= settle_;
  const bool is_confirmed = std::ranges::all_of(mismatch->culprits, [&](const auto& culprit) {
    const RankState& rank = ranks[static_cast<size_t>(culprit.rank)];
    return rank.code || (rank.digest && rank.digest->at > *compared.differs_since);
  });
  const bool is_certain = std::ranges::none_of(compared.newest, [&](const auto& newest) {
    const RankState& rank = ranks[static_cast<size_t>(newest.first)];
    const GroupDigest* const group = rank.code ? nullptr : find_group(rank, key);
    const CallDigest* const call = group == nullptr ? nullptr : find_call(*group, ordinal);
    return call != nullptr && call->may_be_withdrawn;
  });
  if (!at_once && !(is_settled && is_confirmed && is_certain)) return std::nullopt;
  mismatch->group = key;
  if (!by_calls) return mismatch;
  for (const Made& other : compared.calls[ordinal]) {
    const Mismatch::Party& culprit = mismatch->culprits.front();
    if (agree(other.call, culprit.call)) continue;
    const GroupDigest* const a = find_group(ranks[static_cast<size_t>(culprit.rank)], key);
    const GroupDigest* const b = find_group(ranks[static_cast<size_t>(other.ranks.front())], key);
    mismatch->is_order = a != nullptr && b != nullptr && differ_in_order_only(*a, *b, ordinal);
    break;
  }
  return mismatch;
}

std::optional<Mismatch> CallComparison::judge_calls(const Compared& compared, uint64_t ordinal) {
  const std::vector<Made>& made = compared.calls.at(ordinal);
  std::vector<size_t> support(made.size());
  for (size_t i = 0; i < std::min(made.size(), kCampsMax); ++i) {
    for (const Made& other : made)
      support[i] += agree(made[i].call, other.call) ? other.ranks.size() : 0;
  }
  const auto best = static_cast<size_t>(std::ranges::max_element(support) - support.begin());
  Mismatch mismatch;
  mismatch.ordinal = ordinal;
  mismatch.expected = made[best].call;
  mismatch.is_tie = made.size() > kCampsMax;
  for (size_t i = 0; i < made.size(); ++i)
    mismatch.is_tie |= support[i] == support[best] && !agree(made[i].call, made[best].call);
  for (const Made& one : made) {
    const bool is_in_dispute =
        mismatch.is_tie
            ? std::ranges::any_of(made, [&](const Made& x) { return !agree(x.call, one.call); })
            : !agree(one.call, made[best].call);
    if (!is_in_dispute) continue;
    for (const int rank : one.ranks)
      mismatch.culprits.push_back({rank, one.call});
  }
  std::ranges::sort(mismatch.culprits, {}, &Mismatch::Party::rank);
  return mismatch;
}

// nullopt: the calls themselves were compared, and agree.
std::optional<Mismatch> CallComparison::judge_hashes(const Compared& compared, uint64_t ordinal) {
  const std::vector<Hashed>& hashed = compared.hashes.at(ordinal);
  Mismatch mismatch;
  mismatch.ordinal = ordinal;
  uint64_t agree_to = compared.hashes_agree_to;
  for (auto one = compared.hashes.begin(); one->first < ordinal; ++one) {
    if (one->second.size() == 1 && count_ranks(one->second) == compared.size)
      agree_to = std::max(agree_to, one->first);
  }
  mismatch.from_ordinal = agree_to + 1;
  bool are_compared = true;
  for (uint64_t i = mismatch.from_ordinal; i <= ordinal && are_compared; ++i)
    are_compared = compared.agreed.contains(i);
  if (are_compared) return std::nullopt;
  const auto by_size = [](const Hashed& one) { return one.ranks.size(); };
  const auto source_differs = [&](const Hashed& one) {
    return std::ranges::count(hashed, one.source, &Hashed::source) > 1;
  };
  std::vector<Hashed> camps;
  std::ranges::copy_if(hashed, std::back_inserter(camps), source_differs);
  std::erase_if(camps, [&](const Hashed& one) { return one.source != camps.front().source; });
  const Hashed best = *std::ranges::max_element(camps, {}, by_size);
  mismatch.is_tie = std::ranges::count(camps, best.ranks.size(), by_size) > 1;
  for (const Hashed& one : camps) {
    if (!mismatch.is_tie && one.hash == best.hash) continue;
    for (const int rank : one.ranks)
      mismatch.culprits.push_back({rank, {}});
  }
  std::ranges::sort(mismatch.culprits, {}, &Mismatch::Party::rank);
  return mismatch;
}

bool CallComparison::is_pending() const {
  return std::ranges::any_of(groups_, [](const auto& entry) {
    return entry.second.differs_since && !entry.second.is_closed;
  });
}

bool CallComparison::explains(const GroupKey& group, uint64_t ordinal) const {
  const auto found = groups_.find(group);
  const uint64_t at = found == groups_.end() ? 0 : found->second.differs_at;
  return at > 0 && ordinal >= at && ordinal - at < ring::kHashEvery;
}

void CallComparison::forget_groups(const std::function<bool(const GroupKey&)>& kept) {
  std::erase_if(groups_, [&](const auto& entry) { return !kept(entry.first); });
}

}  // namespace muster::hang
