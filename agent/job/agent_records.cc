// The agent's answer to `musterctl records`: what the ranks of this node have recorded.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "agent/job/agent_loop.h"
#include "agent/process/process_tree.h"

namespace muster {
namespace {

// The answer to a question for more would hold up the agent's loop for longer than 0.4 s.
constexpr size_t kCallsMax = 32'768;

// Whether a live process writes the ring that has no business with it. What one that has ended left
// there is believed: its last calls are what is asked for.
bool is_written_by_another(const RecordedState& state, pid_t worker) {
  const std::optional<ProcessEntry> owner = look_at_entry(state.owner);
  return owner && owner->start_ticks == state.owner_started && !is_over(*owner) &&
         !is_at_or_below(state.owner, worker);
}

}  // namespace

void AgentLoop::give_records(const control::RecordsRequest& request,
                             ControlHandlers::RecordsDone done) {
  if (!rings_.wanted()) {
    return done(fail(ExitCode::environment,
                     "calls are not recorded: the job was started with --no-recorder"));
  }
  if (attempt_ < 0) {
    return done(
        fail(ExitCode::environment, "no worker is running yet; try again when the job has begun"));
  }
  const auto lines = static_cast<size_t>(request.lines);
  std::vector<int> local_ranks;
  for (int local_rank = 0; local_rank < setup_.workers; ++local_rank) {
    if (control::selects(request.ranks, round_.base_rank + local_rank))
      local_ranks.push_back(local_rank);
  }
  if (local_ranks.empty()) return done(tl::unexpected(no_such_rank_here()));
  if (local_ranks.size() * lines > kCallsMax) {
    return done(fail(ExitCode::environment,
                     fmt::format("{} ranks with {} calls each are too many for one answer, which "
                                 "holds {}; ask for fewer",
                                 local_ranks.size(), lines, kCallsMax)));
  }
  std::vector<RankRing> rings;
  for (const int local_rank : local_ranks)
    rings.push_back(read_ring(local_rank, std::max(lines, kCallsForSummary)));
  const Instant now = to_instant(std::chrono::steady_clock::now());
  site_names_.name(std::move(rings),
                   [now, lines, done = std::move(done)](const std::vector<RankRing>& named) {
                     std::vector<RankRecords> records;
                     for (const RankRing& ring : named)
                       records.push_back(records_of(ring, now, lines));
                     done(std::move(records));
                   });
}

RankRing AgentLoop::read_ring(int local_rank, size_t calls_max) const {
  RankRing ring;
  ring.rank = round_.base_rank + local_rank;
  ring.pid = processes_.pid(local_rank);
  const RingReader* const reader = rings_.reader(local_rank);
  if (reader == nullptr) {
    ring.why_none = "it has no ring to record its calls in; see the job's first lines";
    return ring;
  }
  ring.state = reader->state();
  if (ring.state && is_written_by_another(*ring.state, ring.pid)) {
    ring.state.reset();
    ring.why_none = "its ring is written by a process that is not the worker's";
  }
  if (ring.state) ring.calls = reader->calls(calls_max);
  return ring;
}

}  // namespace muster
