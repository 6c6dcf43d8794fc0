#include "agent/hang/rank_state.h"

#include <algorithm>
#include <utility>

namespace muster::hang {
namespace {

bool say_the_same(const RankDigest& a, const RankDigest& b) {
  const auto same_group = [](const GroupDigest& x, const GroupDigest& y) {
    return x.called == y.called && (x.completed == y.completed || y.completion_is_unseen) &&
           x.phase == y.phase && x.id == y.id;
  };
  const auto same_messages = [](const MessageDigest& x, const MessageDigest& y) {
    return x.called == y.called && (x.completed == y.completed || y.completion_is_unseen) &&
           x.peer == y.peer && x.is_recv == y.is_recv && x.group == y.group;
  };
  return a.generation == b.generation && std::ranges::equal(a.groups, b.groups, same_group) &&
         std::ranges::equal(a.messages, b.messages, same_messages);
}

}  // namespace

bool RankState::take(RankDigest& news, Instant now) {
  news.at = std::min(news.at, now);
  if (digest && (digest->is_last || news.generation < digest->generation)) return false;
  if (digest && news.generation == digest->generation && news.at <= digest->at && !news.is_last)
    return false;
  if (!digest || !say_the_same(*digest, news)) unchanged_since = news.at;
  if (!digest) digest.emplace();
  std::swap(*digest, news);
  return true;
}

bool RankState::confirm(Instant at) {
  if (!digest || digest->is_last || at <= digest->at) return false;
  digest->at = at;
  return true;
}

void RankState::see(const Life& seen, Instant at, Duration between) {
  if (at < life_seen) return;
  if (seen.state != life.state || at - life_seen > kLooksMissed * between)
    life_since = at - between;
  life = seen;
  life_seen = at;
}

LifeState RankState::life_at(Instant now, Duration between) const {
  return now - life_seen > kLooksMissed * between ? LifeState::unknown : life.state;
}

const GroupDigest* find_group(const RankDigest& digest, const std::string& id) {
  const auto found = std::ranges::find(digest.groups, id, &GroupDigest::id);
  return found == digest.groups.end() ? nullptr : &*found;
}

}  // namespace muster::hang
