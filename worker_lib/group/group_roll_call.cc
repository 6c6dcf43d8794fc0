#include "worker_lib/group/group_roll_call.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>

#include <fmt/format.h>

namespace muster::worker {

namespace {

constexpr const char* kCameKey = "came";
constexpr const char* kCountKey = "count";
constexpr const char* kVerdictKey = "verdict";
// How often a wait checks whether it is interrupted.
constexpr std::chrono::milliseconds kRollCallGlance{50};

// "0:cpu,3:cpu,": global ranks, each with its wish.
std::vector<bool> parse_came(std::string_view text, int world_max) {
  std::vector<bool> came(static_cast<size_t>(world_max) + 1);
  while (!text.empty()) {
    int rank = -1;
    std::from_chars(text.data(), text.data() + text.size(), rank);
    if (rank >= 0 && rank <= world_max) came[static_cast<size_t>(rank)] = true;
    const size_t end = text.find(',');
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return came;
}

}  // namespace

Failure store_failure(const Error& error) {
  return {ErrorCode::rendezvous, error.message, {}};
}

std::string did_not_come(const Members& members, const std::vector<GlobalRank>& ranks) {
  constexpr size_t kNamedMax = 8;
  std::string who;
  for (size_t i = 0; i < ranks.size() && i < kNamedMax; ++i) {
    if (i > 0) who += i + 1 == ranks.size() ? " and " : ", ";
    const auto peer = std::ranges::find(members.peers, ranks[i], &Peer::rank);
    who += peer == members.peers.end() ? "rank " + std::to_string(ranks[i].value) : describe(*peer);
  }
  if (ranks.size() > kNamedMax)
    who += " and " + std::to_string(ranks.size() - kNamedMax) + " others";
  return who + " did not arrive";
}

Outcome<bool> RollCall::enter(std::string_view wish) {
  const auto came =
      store_.append(kCameKey, fmt::format("{}:{},", members_.self().rank.value, wish));
  if (!came) return tl::unexpected(store_failure(came.error()));
  const auto count = store_.add(kCountKey, 1);
  if (!count) return tl::unexpected(store_failure(count.error()));
  return *count == members_.size();
}

Outcome<std::vector<std::string>> RollCall::wishes() {
  const auto text = store_.get(kCameKey);
  if (!text) return tl::unexpected(store_failure(text.error()));
  std::vector<std::string> wishes(members_.peers.size());
  for (size_t i = 0; i < wishes.size(); ++i) {
    const std::string entry = fmt::format(",{}:", members_[static_cast<int>(i)].rank.value);
    const std::string all = "," + *text;
    const size_t at = all.find(entry);
    if (at == std::string::npos) continue;
    const size_t begin = at + entry.size();
    wishes[i] = all.substr(begin, all.find(',', begin) - begin);
  }
  return wishes;
}

Outcome<std::vector<GlobalRank>> RollCall::missing() {
  const auto text = store_.get(kCameKey);
  if (!text) return tl::unexpected(store_failure(text.error()));
  std::vector<GlobalRank> all;
  for (const Peer& peer : members_.peers)
    all.push_back(peer.rank);
  std::ranges::sort(all);
  const std::vector<bool> came = parse_came(*text, all.back().value);
  std::erase_if(all, [&](GlobalRank rank) { return came[static_cast<size_t>(rank.value)]; });
  return all;
}

Outcome<std::string> RollCall::decide(const std::string& verdict) {
  const auto holds = store_.compare_set(kVerdictKey, "", verdict);
  if (!holds) return tl::unexpected(store_failure(holds.error()));
  return *holds;
}

Outcome<std::optional<std::string>> RollCall::wait_verdict(
    Deadline until, const std::function<std::optional<Failure>()>& interrupted) {
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    const Duration left =
        std::clamp<Duration>(until - now, std::chrono::milliseconds{1}, kRollCallGlance);
    const auto there = store_.wait({kVerdictKey}, left);
    if (there) break;
    if (!store_.connected()) return tl::unexpected(store_failure(there.error()));
    if (auto failure = interrupted()) return tl::unexpected(std::move(*failure));
    if (now >= until) return std::nullopt;
  }
  const auto verdict = store_.get(kVerdictKey);
  if (!verdict) return tl::unexpected(store_failure(verdict.error()));
  return *verdict;
}

void RollCall::forget() {
  for (const char* key : {kCameKey, kCountKey, kVerdictKey})
    static_cast<void>(store_.delete_key(key));
}

}  // namespace muster::worker
