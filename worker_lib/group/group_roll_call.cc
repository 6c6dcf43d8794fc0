#include "worker_lib/group/group_roll_call.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster::worker {

namespace {

constexpr const char* kCameKey = "came";
constexpr const char* kCountKey = "count";
constexpr const char* kVerdictKey = "verdict";
// Interval at which a wait checks for interruption.
constexpr std::chrono::milliseconds kRollCallGlance{50};

Failure roll_call_failure(const Error& error) {
  return {ErrorCode::rendezvous, error.message, {}};
}

}  // namespace

std::string did_not_come(const Members& members, const std::vector<GlobalRank>& ranks) {
  std::vector<Peer> peers;
  for (const GlobalRank rank : ranks) {
    const auto peer = std::ranges::find(members.peers, rank, &Peer::rank);
    if (peer != members.peers.end()) peers.push_back(*peer);
  }
  return describe(peers) + " did not arrive";
}

Outcome<bool> RollCall::enter(std::string_view wish) {
  const auto came =
      store_.append(kCameKey, fmt::format("{}:{},", members_.self().rank.value, wish));
  if (!came) return tl::unexpected(roll_call_failure(came.error()));
  return store_.add(kCountKey, 1)
      .map([this](int64_t count) { return count == members_.size(); })
      .map_error(roll_call_failure);
}

// Parses "0:cpu,3:cpu,": global ranks, each with its wish.
Outcome<std::map<GlobalRank, std::string>> RollCall::entered() {
  const auto text = store_.get(kCameKey);
  if (!text) return tl::unexpected(roll_call_failure(text.error()));
  std::map<GlobalRank, std::string> entered;
  for (const std::string_view entry : split(*text, ',')) {
    const size_t colon = entry.find(':');
    const auto rank = whole_number<int>(entry.substr(0, colon));
    if (rank && colon != std::string_view::npos)
      entered.try_emplace(GlobalRank{*rank}, entry.substr(colon + 1));
  }
  return entered;
}

Outcome<std::vector<std::string>> RollCall::wishes() {
  const auto came = entered();
  if (!came) return tl::unexpected(came.error());
  std::vector<std::string> wishes;
  for (const Peer& peer : members_.peers) {
    const auto entry = came->find(peer.rank);
    wishes.push_back(entry == came->end() ? std::string() : entry->second);
  }
  return wishes;
}

Outcome<std::vector<GlobalRank>> RollCall::missing() {
  const auto came = entered();
  if (!came) return tl::unexpected(came.error());
  std::vector<GlobalRank> missing;
  for (const Peer& peer : members_.peers) {
    if (!came->contains(peer.rank)) missing.push_back(peer.rank);
  }
  std::ranges::sort(missing);
  return missing;
}

Outcome<std::string> RollCall::decide(const std::string& verdict) {
  return store_.compare_set(kVerdictKey, "", verdict).map_error(roll_call_failure);
}

Outcome<std::optional<std::string>> RollCall::wait_verdict(
    Deadline until, const std::function<std::optional<Failure>()>& interrupted) {
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    const Duration left =
        std::clamp<Duration>(until - now, std::chrono::milliseconds{1}, kRollCallGlance);
    const auto there = store_.wait({kVerdictKey}, left);
    if (there) break;
    if (!store_.connected()) return tl::unexpected(roll_call_failure(there.error()));
    if (auto failure = interrupted()) return tl::unexpected(std::move(*failure));
    if (now >= until) return std::nullopt;
  }
  return store_.get(kVerdictKey).map_error(roll_call_failure);
}

void RollCall::forget() {
  for (const char* key : {kCameKey, kCountKey, kVerdictKey})
    static_cast<void>(store_.delete_key(key));
}

}  // namespace muster::worker
