#include "agent/hang/node_reporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/ring/ring_layout.h"

namespace muster::hang {
namespace {

constexpr size_t kHashesSent = 64;  // Per group.
constexpr size_t kHashesGathered = 256;
constexpr size_t kCallsRepeated = 16;

bool takes_calls(const GroupDigest& group) {
  return group.phase == GroupPhase::forming || group.phase == GroupPhase::ready;
}

// Returns true if a call of the rank has been pending for `least`.
bool is_waiting(const RankDigest& digest, Duration least) {
  const auto is_old = [&](Instant since) { return digest.at - since >= least; };
  const auto waits_in = [&](const GroupDigest& group) {
    if (group.phase == GroupPhase::forming) return is_old(group.since);
    if (group.phase != GroupPhase::ready || group.completed >= group.called) return false;
    const uint64_t ordinal = group.completion_is_unseen ? group.called : group.completed + 1;
    const auto call = std::ranges::find(group.calls, ordinal, &CallDigest::ordinal);
    return call == group.calls.end() || is_old(call->called);
  };
  return std::ranges::any_of(digest.groups, waits_in) ||
         std::ranges::any_of(digest.messages, [&](const MessageDigest& message) {
           return message.completed < message.called && is_old(message.called_at);
         });
}

// Chooses the two newest multiples of each power of two, so that ranks at different calls have some
// hashes in common.
std::vector<HashDigest> choose_hashes(const std::map<uint64_t, uint64_t>& seen) {
  std::map<uint64_t, uint64_t> chosen;
  for (uint64_t step = ring::kHashEvery; step != 0 && chosen.size() + 2 <= kHashesSent; step *= 2) {
    int count = 0;
    for (auto one = seen.rbegin(); one != seen.rend() && count < 2; ++one) {
      if (one->first % step != 0) continue;
      chosen.insert(*one);
      ++count;
    }
    if (count == 0) break;
  }
  std::vector<HashDigest> hashes;
  for (const auto& [ordinal, hash] : chosen)
    hashes.push_back({ordinal, hash});
  return hashes;
}

// Keeps the calls in flight and the `last` newest ones.
void keep_calls(RankDigest& digest, size_t last) {
  for (GroupDigest& group : digest.groups) {
    const size_t skipped = group.calls.size() - std::min(group.calls.size(), last);
    const auto end = group.calls.begin() + static_cast<ptrdiff_t>(skipped);
    const auto kept = std::remove_if(group.calls.begin(), end, [&](const CallDigest& call) {
      return group.completion_is_unseen || call.ordinal <= group.completed;
    });
    group.calls.erase(kept, end);
  }
}

// Shortens a rank that does not fit into a message, but never so that it looks late, as it would in
// a group or message that is left out. Returns false if nothing is left to drop.
bool shorten(RankNews& news, int attempt) {
  if (!news.digest) return false;
  RankDigest& digest = *news.digest;
  switch (attempt) {
    case 0:
      keep_calls(digest, kCallsRepeated);
      return true;
    case 1:
      for (GroupDigest& group : digest.groups) {
        std::erase_if(group.calls, [&](const CallDigest& call) {
          return call.ordinal != group.called && call.ordinal != group.completed + 1;
        });
        group.hashes.clear();
      }
      return true;
    case 2:
      for (GroupDigest& group : digest.groups)
        group.ranks.clear();
      return true;
    case 3:
      std::erase_if(digest.groups, [](const GroupDigest& group) { return !takes_calls(group); });
      std::erase_if(digest.messages, [&](const MessageDigest& message) {
        return std::ranges::count(digest.groups, message.group, &GroupDigest::id) == 0;
      });
      return true;
    default:
      news.digest.reset();
      news.version = 0;
      return true;
  }
}

}  // namespace

NodeReporter::NodeReporter(std::string host, int base_rank, int workers)
    : host_(std::move(host)),
      base_rank_(base_rank),
      ranks_(static_cast<size_t>(std::max(workers, 0))) {}

NodeReporter::Rank* NodeReporter::own(int rank) {
  const int64_t index = int64_t{rank} - base_rank_;
  const bool is_own = index >= 0 && static_cast<size_t>(index) < ranks_.size();
  return is_own ? &ranks_[static_cast<size_t>(index)] : nullptr;
}

void NodeReporter::started(int rank, pid_t pid, std::string device) {
  Rank* const one = own(rank);
  if (one == nullptr) return;
  one->pid = pid;
  one->device = std::move(device);
}

// ---- Events.

void NodeReporter::note(Instant now, const Event& event) {
  std::visit([&](const auto& one) { on(now, one); }, event);
}

void NodeReporter::on(Instant, const Digested& event) {
  Rank* const rank = own(event.digest.rank);
  if (rank == nullptr) return;
  if (rank->digest && rank->digest->generation != event.digest.generation) rank->hashes.clear();
  std::string shape = shape_of(event.digest);
  if (rank->digest && rank->shape == shape &&
      std::ranges::equal(rank->digest->groups, event.digest.groups, {}, &GroupDigest::own_rank,
                         &GroupDigest::own_rank)) {
    rank->digest->at = event.digest.at;
    return;
  }
  rank->digest = event.digest;
  rank->shape = std::move(shape);
  ++rank->version;
  rank->tellings = 0;
  gather_hashes(*rank);
}

void NodeReporter::gather_hashes(Rank& rank) {
  std::erase_if(rank.hashes, [&](const auto& entry) {
    return std::ranges::count(rank.digest->groups, entry.first, &GroupDigest::id) == 0;
  });
  for (const GroupDigest& group : rank.digest->groups) {
    if (group.hashes.empty()) continue;
    Hashes& hashes = rank.hashes[group.id];
    auto& seen = hashes.seen;
    if (group.called < hashes.sent) {  // Calls were refused; their ordinals are used again.
      hashes.sent = hashes.sent_before = 0;
      seen.erase(seen.upper_bound(group.called), seen.end());
    }
    for (const HashDigest& hash : group.hashes) {
      if (hash.ordinal >= hashes.sent_before) seen[hash.ordinal] = hash.hash;
    }
    while (seen.size() > kHashesGathered)
      seen.erase(seen.begin());
  }
}

void NodeReporter::on(Instant now, const LifeSeen& event) {
  if (Rank* const rank = own(event.rank)) rank->life = RankLife{event.life, event.at.value_or(now)};
}

void NodeReporter::on(Instant, const Ended& event) {
  Rank* const rank = own(event.rank);
  if (rank == nullptr) return;
  rank->code = event.code;
  is_urgent_ = true;
}

void NodeReporter::on(Instant, const Suspended&) {
  is_suspended_ = is_urgent_ = true;
}

void NodeReporter::on(Instant, const Resumed&) {
  is_suspended_ = false;
  is_urgent_ = true;
}

void NodeReporter::on(Instant, const Jumped&) {
  ++jumps_;
  is_urgent_ = true;
}

void NodeReporter::want(Instant now, const std::vector<int>& ranks) {
  wanted_.clear();
  std::ranges::copy_if(ranks, std::back_inserter(wanted_),
                       [this](int rank) { return own(rank) != nullptr; });
  std::ranges::sort(wanted_);
  wanted_at_ = now;
}

std::vector<int> NodeReporter::wanted(Instant now) const {
  return now - wanted_at_ < kWantedFor ? wanted_ : std::vector<int>();
}

bool NodeReporter::is_wanted(Instant now, int rank) const {
  return now - wanted_at_ < kWantedFor && std::ranges::binary_search(wanted_, rank);
}

bool NodeReporter::judged(const std::vector<int>& ranks) {
  bool is_news = false;
  for (const int rank : ranks) {
    if (Rank* const one = own(rank)) is_news |= !std::exchange(one->is_judged, true);
  }
  return is_news && awaits_judgement();
}

bool NodeReporter::awaits_judgement() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.code.has_value(); }) &&
         std::ranges::any_of(ranks_,
                             [](const Rank& rank) { return rank.digest && !rank.is_judged; });
}

// ---- Messages.

bool NodeReporter::is_due(Instant now) const {
  if (is_urgent_ || !sent_ || now - *sent_ >= kIdleEvery || !wanted(now).empty()) return true;
  return std::ranges::any_of(ranks_, [](const Rank& rank) {
    return rank.digest && !rank.code && is_waiting(*rank.digest, kPendingAfter);
  });
}

RankDigest NodeReporter::digest_to_send(const Rank& rank) {
  RankDigest digest = *rank.digest;
  for (GroupDigest& group : digest.groups) {
    const auto gathered = rank.hashes.find(group.id);
    if (gathered != rank.hashes.end()) group.hashes = choose_hashes(gathered->second.seen);
  }
  if (rank.tellings > 0) keep_calls(digest, kCallsRepeated);
  return digest;
}

RankNews NodeReporter::news_of(Instant now, int rank) const {
  const Rank& one = ranks_[static_cast<size_t>(rank - base_rank_)];
  RankNews news{.rank = rank,
                .pid = one.pid,
                .device = one.device,
                .version = one.version,
                .at = {},
                .digest = {},
                .life = {},
                .code = one.code};
  if (is_wanted(now, rank) && !one.code) news.life = one.life;
  if (!one.digest) return news;
  news.at = one.digest->at;
  const bool is_known = one.tellings >= kTellings && now - one.sent < kIdleEvery;
  if (!is_known || one.code) news.digest = digest_to_send(one);
  return news;
}

std::optional<std::string> NodeReporter::message(Instant now, bool at_once) {
  if (!at_once && !is_due(now)) return std::nullopt;
  std::vector<RankNews> all;
  for (size_t i = 0; i < ranks_.size(); ++i)
    all.push_back(news_of(now, base_rank_ + static_cast<int>((first_ + i) % ranks_.size())));
  NodeDigest digest{
      .host = host_, .heard = heard_, .jumps = jumps_, .is_suspended = is_suspended_, .ranks = {}};
  size_t count = all.size();
  std::string bytes;
  for (int attempt = 0;; ++attempt) {
    digest.ranks.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(count));
    std::ranges::sort(digest.ranks, {}, &RankNews::rank);
    bytes = encode(digest, now);
    if (bytes.size() <= kLetterBytesMax) break;
    if (count > 1) {
      count = std::clamp(count * kLetterBytesMax / bytes.size(), size_t{1}, count - 1);
      attempt = -1;
    } else if (!shorten(all.front(), attempt)) {
      break;
    }
  }
  for (const RankNews& news : digest.ranks)
    note_sent(now, news);
  sent_ = now;
  is_urgent_ = count < all.size();
  first_ = all.empty() ? 0 : (first_ + count) % ranks_.size();
  return bytes;
}

void NodeReporter::note_sent(Instant now, const RankNews& news) {
  Rank& rank = *own(news.rank);
  if (!rank.digest || (!news.digest && news.version > 0)) return;
  ++rank.tellings;
  rank.sent = now;
  for (auto& [id, hashes] : rank.hashes) {
    if (hashes.seen.empty() || hashes.seen.rbegin()->first <= hashes.sent) continue;
    hashes.sent_before = std::exchange(hashes.sent, hashes.seen.rbegin()->first);
    hashes.seen.erase(hashes.seen.begin(), hashes.seen.lower_bound(hashes.sent_before));
  }
}

}  // namespace muster::hang
