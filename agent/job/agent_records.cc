// The agent's answer to `musterctl records`: what the ranks of the job have recorded.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "agent/job/agent_loop.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// The answer to a question for more would hold up the agent's loop for longer than 0.4 s.
constexpr size_t kCallsMax = 32'768;
// Of other nodes, which only look into memory. A node that stands still is lost soon after.
constexpr auto kRecordsLimit = std::chrono::seconds(2);

std::optional<Error> too_many(size_t ranks, int lines) {
  if (ranks * static_cast<size_t>(lines) <= kCallsMax) return std::nullopt;
  return Error{ExitCode::environment,
               fmt::format("{} with {} each are too many for one answer, which holds {}; ask for "
                           "fewer",
                           counted(ranks, "rank"), counted(lines, "call"), kCallsMax)};
}

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
  const Result<std::vector<int>> ranks = wanted_ranks(request.ranks);
  if (!ranks) return done(tl::unexpected(ranks.error()));
  if (const auto error = too_many(ranks->size(), request.lines))
    return done(tl::unexpected(*error));
  const auto of = [request](control::RankRanges ranges) {
    control::RecordsRequest part = request;
    part.ranks = std::move(ranges);
    return part;
  };
  ask_job(
      *ranks, of, kRecordsLimit,
      [done = std::move(done), strangers = strangers_text(request.ranks, round_.world_size)](
          const std::vector<NodeAnswer>& answers) { done(joined_records(answers, strangers)); });
}

void AgentLoop::records_here(const control::RecordsRequest& request, ReplyDone done) {
  if (!rings_.wanted()) {
    return done(Error{ExitCode::environment,
                      "calls are not recorded: the job was started with --no-recorder"});
  }
  const auto lines = static_cast<size_t>(request.lines);
  const std::vector<int> local_ranks = local_ranks_of(request.ranks);
  if (const auto error = too_many(local_ranks.size(), request.lines)) return done(*error);
  std::vector<RankRing> rings;
  for (const int local_rank : local_ranks)
    rings.push_back(read_ring(local_rank, std::max(lines, kCallsForSummary)));
  const Instant now = to_instant(std::chrono::steady_clock::now());
  site_names_.name(std::move(rings),
                   [now, lines, done = std::move(done)](const std::vector<RankRing>& named) {
                     control::Records records;
                     for (const RankRing& ring : named)
                       records.ranks.push_back(records_of(ring, now, lines));
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
