// Where the ranks of the job are: for musterctl, and for what the hang detector finds.
#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "agent/hang/life.h"
#include "agent/hang/stacks.h"
#include "agent/job/agent_loop.h"
#include "rendezvous/base/stack_signal.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// Of those that are named, and of those that wait for them.
constexpr size_t kRanksTold = 8;
// Of other nodes, whose StackReader takes 8 s at most.
constexpr auto kStacksLimit = std::chrono::seconds(10);
constexpr auto kLookBeforeKill = std::chrono::seconds(2);

// The late ones first.
std::vector<int> ranks_told(const hang::Finding& finding, bool quiet) {
  std::vector<int> ranks;
  for (size_t i = 0; i < std::min(finding.ranks.size(), kRanksTold); ++i)
    ranks.push_back(finding.ranks[i].rank);
  for (size_t i = 0; !quiet && i < std::min(finding.waiting.size(), kRanksTold); ++i)
    ranks.push_back(finding.waiting[i]);
  return ranks;
}

}  // namespace

void AgentLoop::give_stacks(const control::StacksRequest& request,
                            ControlHandlers::StacksDone done) {
  const Result<std::vector<int>> ranks = wanted_ranks(request.ranks);
  if (!ranks) return done(tl::unexpected(ranks.error()));
  const auto of = [request](control::RankRanges ranges) {
    control::StacksRequest part = request;
    part.ranks = std::move(ranges);
    return part;
  };
  ask_job(*ranks, of, kStacksLimit,
          [done = std::move(done), strangers = strangers_text(request.ranks, round_.world_size)](
              const std::vector<NodeAnswer>& answers) { done(joined_stacks(answers, strangers)); });
}

void AgentLoop::stacks_here(const control::StacksRequest& request, ReplyDone done) {
  std::vector<int> local_ranks = local_ranks_of(request.ranks);
  std::set<int> in_calls;
  for (const int local_rank : local_ranks) {
    if (pending_call(local_rank, /*synchronous=*/false))
      in_calls.insert(round_.base_rank + local_rank);
  }
  // First those that are in no call: others may wait for them.
  std::ranges::sort(local_ranks, {}, [&](int local_rank) {
    return std::pair(in_calls.contains(round_.base_rank + local_rank), local_rank);
  });
  read_stacks(local_ranks, request.quiet ? StackLook::quiet : StackLook::thorough,
              StackReader::kPatience,
              [in_calls, main_threads = request.main_threads,
               done = std::move(done)](std::vector<RankStacks> read) {
                for (RankStacks& stacks : read) {
                  stacks.in_call = in_calls.contains(stacks.rank);
                  if (main_threads && stacks.threads.size() > 1) stacks.threads.resize(1);
                }
                done(control::Stacks{std::move(read), {}});
              });
}

// Of the process that records, or that it waits for; of a worker that records nothing, of the one
// that seems to do its work.
void AgentLoop::read_stacks(const std::vector<int>& local_ranks, StackLook look, Duration patience,
                            StackReader::Done done) {
  std::vector<StackTarget> targets;
  for (const int local_rank : local_ranks) {
    const RankRing ring = read_ring(local_rank, 0);
    const hang::LifeLook life = hang::look_at(ring.pid, ring.state ? ring.state->owner : 0);
    const bool is_gone = life.presence == hang::LifeLook::Presence::gone;
    const pid_t process = is_gone ? 0 : (life.process > 0 ? life.process : ring.pid);
    const std::string file =
        python_hook_.empty() ? "" : fmt::format("{}/{}-{}", python_hook_, kStackFile, process);
    targets.push_back({.rank = ring.rank, .pid = ring.pid, .process = process, .file = file});
  }
  stack_reader_.read(targets, look, patience, std::move(done));
}

// Early enough that SIGKILL comes when promised, however long the look takes.
void AgentLoop::look_before_kill(const group::ReportStopping& stop) {
  const Duration lead = std::min<Duration>(kLookBeforeKill, grace() / 2);
  if (stop.live.empty() || stop.left <= lead) return;
  call_after(look_timer_, stop.left - lead, [this, lead, attempt = attempt_, live = stop.live] {
    read_stacks(live, StackLook::brief, lead * 3 / 4, [this, attempt](auto read) {
      if (attempt == attempt_) last_look_ = std::move(read);
    });
  });
}

// Those that have not ended, and where they are.
std::vector<LeftRank> AgentLoop::left_ranks() const {
  std::vector<LeftRank> left;
  const std::vector<AtStop> now = processes_.look();
  for (int i = 0; i < setup_.workers; ++i) {
    if (now[static_cast<size_t>(i)] >= AtStop::exiting) continue;
    LeftRank& rank = left.emplace_back();
    rank.rank = round_.base_rank + i;
    const auto seen = std::ranges::find(last_look_, processes_.pid(i), &RankStacks::pid);
    rank.missing =
        seen == last_look_.end() ? "its stacks could not be read in time" : seen->missing;
    if (seen != last_look_.end() && !seen->threads.empty()) rank.where = main_line(*seen);
    const std::optional<CallLine> call = pending_call(i, /*synchronous=*/true);
    if (!call) continue;
    rank.call = fmt::format("{} #{}", call->operation, call->ordinal);
    rank.group = hang_watch_ ? hang_watch_->name_of_group(call->group) : call->group;
  }
  return left;
}

// After a finding was said: where its ranks are.
void AgentLoop::tell_stacks(const hang::Finding& finding, bool quiet, std::function<void()> told) {
  std::vector<int> ranks = ranks_told(finding, quiet);
  if (ranks.empty()) return told();
  std::ranges::sort(ranks);
  give_stacks({.ranks = ranges_of(ranks), .quiet = quiet, .main_threads = true},
              [this, finding, quiet, told = std::move(told)](const Result<control::Stacks>& read) {
                say_stacks(finding, quiet, read);
                told();
              });
}

// `read`: of its ranks, and perhaps of others.
void AgentLoop::say_stacks(const hang::Finding& finding, bool quiet,
                           const Result<control::Stacks>& read) {
  std::vector<RankStacks> in_order;
  for (const int rank : ranks_told(finding, quiet)) {
    RankStacks& stacks = in_order.emplace_back();
    stacks.rank = rank;
    stacks.missing = "its node has not answered";
    if (!read) continue;
    const auto found = std::ranges::find(read->ranks, rank, &RankStacks::rank);
    if (found != read->ranks.end()) stacks = *found;
  }
  const auto has_some = [](const RankStacks& one) { return !one.threads.empty(); };
  // What could not be read is worth a line only if something was.
  if (std::ranges::none_of(in_order, has_some)) return;
  const std::string text = stacks_text(in_order, /*details=*/false);
  say((quiet ? "where it is now:\n" : "where they are now, the late ones first:\n") +
      text.substr(0, text.size() - 1));
}

}  // namespace muster
