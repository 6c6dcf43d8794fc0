#include "worker_lib/watch/end_reasons.h"

#include <algorithm>

#include <fmt/format.h>

#include "worker_lib/rank_runs.h"

namespace muster::worker::watch {
namespace {

constexpr size_t kGivenUpMax = 64;

}  // namespace

void EndReasons::note(Instant now, const Watch::News& news) {
  using Kind = Watch::News::Kind;
  if (news.kind == Kind::stopped) stopped_[news.rank.value] = news.failure;
  if (news.kind != Kind::aborted) return;
  std::erase_if(given_up_, [&](const GivenUp& one) { return now - one.at >= kAftermath; });
  if (!news.failure.ranks.empty() && given_up_.size() < kGivenUpMax)
    given_up_.push_back({now, news});
}

// Returns why the rank may have ended: one of its groups was given up, and not because of it alone.
// The first such report counts, since later ones may be consequences.
const Failure* EndReasons::reason_to_end(Instant now, GlobalRank rank) const {
  for (const GivenUp& one : given_up_) {
    const std::vector<GlobalRank>& origin = one.news.failure.ranks;
    const std::string& id = one.news.group_id;
    const bool is_member = one.news.rank == rank || id == "world" ||
                           is_in_runs(id.substr(0, id.find('.')), rank.value);
    const bool is_own = origin == std::vector{rank};
    if (is_member && !is_own && now - one.at < kAftermath) return &one.news.failure;
  }
  return nullptr;
}

std::optional<Failure> EndReasons::explain(Instant now, const Members& world,
                                           Watch::News& death) const {
  const std::string who = describe(world[death.rank.value]);
  const auto stopped = stopped_.find(death.rank.value);
  if (stopped == stopped_.end()) {
    if (const Failure* const reason = reason_to_end(now, death.rank)) {
      death.failure.ranks = reason->ranks;
      death.failure.message = fmt::format("{} ended after this: {}", who, reason->message);
    }
    return std::nullopt;
  }
  if (stopped->second.code == ErrorCode::peer_failed) {
    death.failure = stopped->second;
  } else {
    death.failure.message = fmt::format("{} ended: {}", who, stopped->second.message);
  }
  return stopped->second;
}

}  // namespace muster::worker::watch
