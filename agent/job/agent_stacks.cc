// Where the ranks of this node are: for musterctl, and for what the hang detector finds.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "agent/hang/life_look.h"
#include "agent/hang/stacks.h"
#include "agent/job/agent_loop.h"
#include "rendezvous/base/stack_signal.h"

namespace muster {
namespace {

// Of those that are named, and of those that wait for them.
constexpr size_t kRanksTold = 8;

}  // namespace

void AgentLoop::give_stacks(const control::StacksRequest& request,
                            ControlHandlers::StacksDone done) {
  if (attempt_ < 0) {
    return done(
        fail(ExitCode::environment, "no worker is running yet; try again when the job has begun"));
  }
  std::vector<int> local_ranks;  // First those that are in no call: others may wait for them.
  std::vector<int> in_calls;
  for (int local_rank = 0; local_rank < setup_.workers; ++local_rank) {
    if (!control::selects(request.ranks, round_.base_rank + local_rank)) continue;
    (call_in_flight(local_rank).empty() ? local_ranks : in_calls).push_back(local_rank);
  }
  local_ranks.insert(local_ranks.end(), in_calls.begin(), in_calls.end());
  if (local_ranks.empty()) return done(tl::unexpected(no_such_rank_here()));
  read_stacks(local_ranks, /*quiet=*/false,
              [done = std::move(done)](std::vector<RankStacks> read) { done(std::move(read)); });
}

// Of the process that records, or that it waits for; of a worker that records nothing, of the one
// that seems to do its work.
void AgentLoop::read_stacks(const std::vector<int>& local_ranks, bool quiet,
                            StackReader::Done done) {
  std::vector<StackTarget> targets;
  for (const int local_rank : local_ranks) {
    const RankRing ring = read_ring(local_rank, 0);
    const hang::LifeLook look = hang::look_at(ring.pid, ring.state ? ring.state->owner : 0);
    const bool is_gone = look.presence == hang::LifeLook::Presence::gone;
    const pid_t process = is_gone ? 0 : (look.process > 0 ? look.process : ring.pid);
    const std::string file =
        python_hook_.empty() ? "" : fmt::format("{}/{}-{}", python_hook_, kStackFile, process);
    targets.push_back({.rank = ring.rank, .pid = ring.pid, .process = process, .file = file});
  }
  stack_reader_.read(
      targets, quiet,
      [this, local_ranks, quiet, done = std::move(done)](std::vector<RankStacks> read) {
        for (const int local_rank : local_ranks) {
          if (!quiet && hang_watch_) hang_watch_->was_held(local_rank);
        }
        done(std::move(read));
      });
}

// After a finding was said: where its ranks are, the late ones first.
void AgentLoop::tell_stacks(const hang::Finding& finding, bool quiet) {
  std::vector<int> local_ranks;
  const auto add = [&](int rank) {
    const int local_rank = rank - round_.base_rank;
    if (local_rank >= 0 && local_rank < setup_.workers) local_ranks.push_back(local_rank);
  };
  for (size_t i = 0; i < std::min(finding.ranks.size(), kRanksTold); ++i)
    add(finding.ranks[i].rank);
  for (size_t i = 0; !quiet && i < std::min(finding.waiting.size(), kRanksTold); ++i)
    add(finding.waiting[i]);
  read_stacks(local_ranks, quiet, [this, quiet](std::vector<RankStacks> read) {
    // What could not be read is worth a line only if something was.
    if (std::ranges::all_of(read, [](const RankStacks& one) { return one.threads.empty(); }))
      return;
    const std::string text = stacks_text(read, /*details=*/false);
    say((quiet ? "where it is now:\n" : "where they are now, the late ones first:\n") +
        text.substr(0, text.size() - 1));
  });
}

}  // namespace muster
