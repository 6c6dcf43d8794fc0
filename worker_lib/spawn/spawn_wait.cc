// Waits for ranks, and stops those that are left when one fails.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "rendezvous/base/process_end.h"
#include "rendezvous/base/steady_now.h"
#include "worker_lib/spawn/spawn.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

using RankClock = std::chrono::steady_clock;

// Limit for an exiting process to become reapable, and the polling interval. The kernel frees its
// memory first, which takes up to 0.7 s for each GiB; others may have ended of its death by then.
constexpr auto kExitPatience = std::chrono::seconds{30};
constexpr auto kExitLook = std::chrono::milliseconds{5};

Deadline rank_deadline(std::optional<std::chrono::milliseconds> timeout) {
  return timeout ? deadline_after(RankClock::now(), *timeout) : Deadline::max();
}

tl::unexpected<Failure> too_late(std::vector<GlobalRank> left, size_t all,
                                 std::chrono::milliseconds timeout) {
  std::vector<int> numbers;
  for (const GlobalRank rank : left)
    numbers.push_back(rank.value);
  std::string text =
      fmt::format("{} of {} ranks had not ended after {:.3g} s and were stopped: {}", left.size(),
                  all, std::chrono::duration<double>(timeout).count(), fmt::join(numbers, ", "));
  return failed(ErrorCode::timeout, std::move(text), std::move(left));
}

// A rank killed by a signal is a likelier cause than one that reports another as gone.
bool is_likelier_cause(const RankExit& one, const RankExit& other) {
  return one.signal != 0 && other.signal == 0;
}

}  // namespace

RankKeeper::~RankKeeper() {
  stop_rest(SIGKILL);
  wait_for_rest();
}

void RankKeeper::add(StartedRank started) {
  result_.ranks.push_back({.pid = started.pid});
  started_.push_back(std::move(started));
}

bool RankKeeper::any_running() const {
  return std::ranges::any_of(started_, [](const StartedRank& rank) { return bool(rank.end); });
}

void RankKeeper::await_change(Instant until) {
  std::vector<pollfd> entries;
  for (const StartedRank& rank : started_)
    entries.push_back({rank.end.get(), POLLIN, 0});
  poll(entries.data(), entries.size(), poll_timeout(until));
}

// Returns true if the rank has ended.
bool RankKeeper::reap(size_t rank) {
  siginfo_t info{};
  pollfd ended{started_[rank].end.get(), POLLIN, 0};
  if (!started_[rank].end || poll(&ended, 1, 0) <= 0) return false;
  if (waitid(P_PID, static_cast<id_t>(started_[rank].pid), &info, WEXITED | WNOHANG) != 0) {
    // The program ignores SIGCHLD, so the kernel kept no status: counts as exit code 0.
    if (errno != ECHILD) return false;
    info.si_pid = started_[rank].pid;
    info.si_code = CLD_EXITED;
  }
  if (info.si_pid == 0) return false;
  RankExit& exit = result_.ranks[rank];
  exit.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  exit.code = exit.signal != 0 ? 128 + exit.signal : info.si_status;
  started_[rank].end.reset();
  return true;
}

void RankKeeper::reap_ended() {
  for (size_t rank = 0; rank < started_.size(); ++rank) {
    if (!reap(rank) || is_stopping_ || result_.ranks[rank].code == 0) continue;
    const bool is_cause =
        !result_.failed ||
        is_likelier_cause(result_.ranks[rank],
                          result_.ranks[static_cast<size_t>(result_.failed->value)]);
    if (is_cause) result_.failed = GlobalRank{static_cast<int>(rank)};
  }
}

// Waits for ranks that are exiting: the others know of a death before it can be reaped, so ranks
// that fail because of it may be reaped sooner.
void RankKeeper::await_those_on_their_way() {
  const auto is_on_its_way = [](const StartedRank& rank) {
    return rank.end && is_exiting(rank.pid);
  };
  const Instant patience = RankClock::now() + kExitPatience;
  while (RankClock::now() < patience && std::ranges::any_of(started_, is_on_its_way)) {
    await_change(RankClock::now() + kExitLook);
    reap_ended();
  }
}

void RankKeeper::stop_rest(int signal) {
  is_stopping_ = true;
  for (size_t rank = 0; rank < started_.size(); ++rank) {
    if (!started_[rank].end) continue;
    result_.ranks[rank].stopped = true;
    signal_by_end(started_[rank].end, started_[rank].pid, signal);
  }
}

void RankKeeper::wait_for_rest() {
  while (any_running()) {
    await_change(Instant::max());
    reap_ended();
  }
}

// Sends SIGTERM, then SIGKILL to ranks still running after stop_timeout.
void RankKeeper::stop_and_wait() {
  stop_rest(SIGTERM);
  const Instant patience = rank_deadline(options_.stop_timeout);
  while (any_running() && RankClock::now() < patience) {
    await_change(patience);
    reap_ended();
  }
  stop_rest(SIGKILL);
  wait_for_rest();
}

std::vector<GlobalRank> RankKeeper::running_ranks() const {
  std::vector<GlobalRank> ranks;
  for (size_t rank = 0; rank < started_.size(); ++rank) {
    if (started_[rank].end) ranks.push_back(GlobalRank{static_cast<int>(rank)});
  }
  return ranks;
}

Outcome<SpawnResult> RankKeeper::wait(const std::function<void(const SpawnResult&)>& on_failure) {
  const Instant deadline = rank_deadline(options_.timeout);
  while (any_running() && !result_.failed && RankClock::now() < deadline) {
    await_change(deadline);
    reap_ended();
  }
  if (result_.failed) await_those_on_their_way();
  const bool is_late = any_running() && !result_.failed;
  std::vector<GlobalRank> left = running_ranks();
  if (result_.failed && !left.empty() && on_failure) on_failure(result_);
  if (!left.empty()) stop_and_wait();
  if (is_late) return too_late(std::move(left), started_.size(), *options_.timeout);
  return std::move(result_);
}

}  // namespace muster::worker
