#include "worker_lib/group/monitored_barrier.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "worker_lib/group/group_roll_call.h"
#include "worker_lib/recorder/call_site.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

namespace {

constexpr const char* kAllHereVerdict = "all";
const std::string kLateVerdict = "late";
// Least time for reaching the store and finding the missing ranks, even past the caller's deadline.
constexpr std::chrono::seconds kAskingTime{2};

// "late100 1 3": after 100 ms, the time-out of the rank that decides, ranks 1 and 3 were missing.
std::string late_verdict(std::vector<GlobalRank> missing, const MonitoredBarrier::Call& call) {
  if (!call.wait_all_ranks) missing.resize(1);
  std::string text = kLateVerdict + std::to_string(call.limit.count());
  for (const GlobalRank rank : missing)
    text += " " + std::to_string(rank.value);
  return text;
}

std::vector<GlobalRank> parse_late(std::string_view text, std::chrono::milliseconds& limit) {
  const std::vector<std::string_view> words = split(text, ' ');
  std::string_view first = words.front();
  first.remove_prefix(std::min(kLateVerdict.size(), first.size()));
  limit = std::chrono::milliseconds{whole_number<int64_t>(first).value_or(0)};
  std::vector<GlobalRank> ranks;
  for (const std::string_view word : std::span(words).subspan(1))
    ranks.push_back({whole_number<int>(word).value_or(-1)});
  return ranks;
}

Outcome<> verdict_outcome(const std::string& verdict, const MonitoredBarrier::Call& call) {
  if (verdict == kAllHereVerdict) return Done{};
  std::chrono::milliseconds limit{};
  const std::vector<GlobalRank> late = parse_late(verdict, limit);
  const bool is_me = std::ranges::find(late, call.members.self().rank) != late.end();
  return failed(
      ErrorCode::timeout,
      fmt::format("{} {}; {}", did_not_come(call.members, late), within(limit),
                  is_me ? "this is one of them, and it arrived too late or missed an earlier one"
                        : look_at(late.size())),
      late);
}

Outcome<std::string> verdict_at_deadline(RollCall& roll_call, const MonitoredBarrier::Call& call) {
  const auto missing = roll_call.missing();
  if (!missing) return tl::unexpected(missing.error());
  // The last rank has entered and is deciding.
  if (missing->empty()) return roll_call.decide(kAllHereVerdict);
  return roll_call.decide(late_verdict(*missing, call));
}

}  // namespace

Outcome<StoreClient> MonitoredBarrier::connected(const Call& call) {
  if (store_ && store_->connected()) return *store_;
  const auto least = std::chrono::steady_clock::now() + kAskingTime;
  Outcome<StoreClient> store = call.connect(std::max(call.deadline, least));
  if (store) store_ = *store;
  return store;
}

void MonitoredBarrier::disconnect() {
  const std::lock_guard lock(mutex_);
  store_.reset();
}

Outcome<> MonitoredBarrier::pass(const Call& call, uint64_t& number) {
  const std::lock_guard lock(mutex_);
  number = ++begun_;
  const CallRecord record = call.recorder.called(
      number, {.kind = ring::CallKind::monitored_barrier, .is_synchronous = true},
      CallSite::current());
  Outcome<> met = meet(call, number);
  met ? record.completed() : record.failed();
  ended_ = number;
  return met;
}

Outcome<> MonitoredBarrier::meet(const Call& call, uint64_t number) {
  const Outcome<StoreClient> store = connected(call);
  if (!store) return tl::unexpected(store.error());
  RollCall roll_call(store->with_prefix(std::to_string(number)), call.members);
  const Outcome<bool> last = roll_call.enter();
  if (!last) return tl::unexpected(last.error());
  Outcome<std::string> verdict = std::string();
  if (*last) {
    verdict = roll_call.decide(kAllHereVerdict);
  } else {
    const auto told = roll_call.wait_verdict(call.deadline, call.interrupted);
    if (!told) return tl::unexpected(told.error());
    verdict = *told ? Outcome<std::string>(**told) : verdict_at_deadline(roll_call, call);
  }
  if (!verdict) return tl::unexpected(verdict.error());
  // No rank can still be in the barrier before this one.
  if (*verdict == kAllHereVerdict && *last && number > 1)
    RollCall(store->with_prefix(std::to_string(number - 1)), call.members).forget();
  return verdict_outcome(*verdict, call);
}

}  // namespace muster::worker
