#include "agent/job/own_ranks.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "agent/hang/life.h"
#include "agent/hang/stacks.h"
#include "agent/job/node_answers.h"
#include "agent/process/process_tree.h"
#include "agent/report/text.h"
#include "rendezvous/base/stack_signal.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kLookBeforeKill = std::chrono::seconds(2);
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);
constexpr size_t kLookedAtMax = 1024;  // On all ranks: some 0.1 s of the control loop.

// True if a live process outside the worker's tree writes the ring. What a process that has ended
// left there is believed: its last calls are what is asked for.
bool is_written_by_another(const RecordedState& state, pid_t worker) {
  const std::optional<ProcessEntry> owner = look_at_entry(state.owner);
  return owner && owner->start_ticks == state.owner_started && !is_over(*owner) &&
         !is_at_or_below(state.owner, worker);
}

}  // namespace

OwnRanks::OwnRanks(boost::asio::io_context& io, const JobSeam& job, WorkerProcesses& processes,
                   Rings& rings, Callbacks callbacks)
    : job_(job),
      processes_(processes),
      rings_(rings),
      site_names_(io),
      callbacks_(std::move(callbacks)),
      stack_reader_(io, processes, callbacks_.was_held),
      look_again_timer_(io),
      look_timer_(io) {}

void OwnRanks::records(const control::RecordsRequest& request, ReplyDone done) {
  if (!rings_.wanted()) {
    return done(Error{ExitCode::environment,
                      "calls are not recorded: the job was started with --no-recorder"});
  }
  const auto lines = static_cast<size_t>(request.lines);
  const std::vector<int> local_ranks = local_ranks_of(request.ranks);
  if (const auto error = too_many_calls(local_ranks.size(), request.lines)) return done(*error);
  std::vector<RankRing> rings;
  for (const int local_rank : local_ranks)
    rings.push_back(read_ring(local_rank, std::max(lines, kCallsForSummary)));
  const Instant now = steady_now();
  site_names_.name(std::move(rings),
                   [now, lines, done = std::move(done)](const std::vector<RankRing>& named) {
                     control::Records records;
                     for (const RankRing& ring : named)
                       records.ranks.push_back(records_of(ring, now, lines));
                     done(std::move(records));
                   });
}

void OwnRanks::stacks(const control::StacksRequest& request, ReplyDone done) {
  std::vector<int> local_ranks = local_ranks_of(request.ranks);
  std::set<int> in_calls;
  for (const int local_rank : local_ranks) {
    if (pending_call(local_rank, /*synchronous=*/false))
      in_calls.insert(job_.round().base_rank + local_rank);
  }
  // Ranks in no call come first: others may wait for them.
  std::ranges::sort(local_ranks, {}, [&](int local_rank) {
    return std::pair(in_calls.contains(job_.round().base_rank + local_rank), local_rank);
  });
  read_stacks(local_ranks, request.quiet ? StackLook::quiet : StackLook::thorough,
              StackReader::kPatience,
              [this, in_calls, main_threads = request.main_threads,
               done = std::move(done)](std::vector<RankStacks> read) {
                for (RankStacks& stacks : read) {
                  stacks.in_call = in_calls.contains(stacks.rank);
                  name_lock_holders(stacks);
                  stacks.ended_thread = ended_thread(stacks.rank - job_.round().base_rank);
                  if (main_threads) keep_telling_threads(stacks);
                }
                done(control::Stacks{std::move(read), {}});
              });
}

void OwnRanks::name_lock_holders(RankStacks& stacks) const {
  for (ProcessStack& process : stacks.processes) {
    if (process.lock_holder == 0) continue;
    for (int i = 0; i < job_.round().local_world_size; ++i) {
      if (is_at_or_below(process.lock_holder, processes_.pid(i)))
        process.lock_holder_rank = job_.round().base_rank + i;
    }
  }
}

std::optional<EndedThread> OwnRanks::ended_thread(int local_rank) const {
  const RingReader* const reader = rings_.reader(local_rank);
  const auto noted = reader == nullptr ? std::nullopt : reader->ended_thread(pid(local_rank));
  if (!noted) return std::nullopt;
  const Instant when{std::chrono::nanoseconds(noted->time_ns)};
  return EndedThread{.name = noted->threads,
                     .error = noted->error,
                     .site = noted->site,
                     .ended_ago_s = to_seconds(steady_now() - when)};
}

std::vector<int> OwnRanks::local_ranks_of(const control::RankRanges& ranges) const {
  std::vector<int> local_ranks;
  for (int local_rank = 0; local_rank < job_.round().local_world_size; ++local_rank) {
    if (control::selects(ranges, job_.round().base_rank + local_rank))
      local_ranks.push_back(local_rank);
  }
  return local_ranks;
}

RankRing OwnRanks::read_ring(int local_rank, size_t calls_max) const {
  RankRing ring;
  ring.rank = job_.round().base_rank + local_rank;
  ring.pid = processes_.pid(local_rank);
  const RingReader* const reader = rings_.reader(local_rank);
  if (reader == nullptr) {
    ring.why_none = "its calls cannot be recorded; the job's first lines say why";
    return ring;
  }
  ring.state = reader->state();
  if (ring.state && is_written_by_another(*ring.state, ring.pid)) {
    ring.state.reset();
    ring.why_none = "its records are written by a process that does not belong to the worker";
  }
  if (ring.state) ring.calls = reader->calls(calls_max);
  return ring;
}

std::string OwnRanks::call_in_flight(int local_rank) const {
  const std::optional<CallLine> in_flight = pending_call(local_rank, /*synchronous=*/true);
  if (!in_flight) return {};
  return fmt::format("{} #{} of {} for {}", in_flight->operation, in_flight->ordinal,
                     group_title(callbacks_.name_of_group(in_flight->group)),
                     duration_text(from_seconds(in_flight->called_ago_s)));
}

std::optional<Departure> OwnRanks::departure(int local_rank) const {
  const RingReader* const reader = rings_.reader(local_rank);
  const pid_t worker = processes_.pid(local_rank);
  if (reader == nullptr || worker <= 0) return std::nullopt;
  std::optional<Departure> noted = reader->departure(worker);
  const std::optional<ProcessEntry> writer = noted ? look_at_entry(noted->pid) : std::nullopt;
  const bool runs = writer && !is_over(*writer) && is_at_or_below(noted->pid, worker);
  return runs ? std::move(noted) : std::nullopt;
}

// The newest pending call.
std::optional<CallLine> OwnRanks::pending_call(int local_rank, bool synchronous) const {
  const Instant now = steady_now();
  const RankRecords records =
      records_of(read_ring(local_rank, kCallsForSummary), now, kCallsForSummary);
  const auto found =
      std::find_if(records.calls.rbegin(), records.calls.rend(), [&](const CallLine& call) {
        return call.state == CallState::pending && (call.synchronous || !synchronous);
      });
  return found == records.calls.rend() ? std::nullopt : std::optional(*found);
}

// Reads the process that records, or else the one at work. Those below it matter unless the rank
// waits in a call.
void OwnRanks::read_stacks(const std::vector<int>& local_ranks, StackLook look, Duration patience,
                           StackReader::Done done) {
  PendingRead read{{}, {}, look, patience, std::move(done)};
  const bool with_trees = look != StackLook::brief;
  size_t left = kLookedAtMax;
  const std::vector<ProcessEntry> all =
      with_trees ? descendants_of(getpid(), {}) : std::vector<ProcessEntry>();
  for (const int local_rank : local_ranks) {
    const RankRing ring = read_ring(local_rank, 0);
    const hang::LifeLook life = hang::look_at(ring.pid);
    const bool is_gone = life.presence == hang::LifeLook::Presence::gone;
    const bool records = ring.state && life.tree.contains(ring.state->owner);
    const pid_t at_work = life.process > 0 ? life.process : ring.pid;
    const pid_t process = is_gone ? 0 : (records ? ring.state->owner : at_work);
    const std::string file =
        stack_folder_.empty() ? "" : fmt::format("{}/{}-{}", stack_folder_, kStackFile, process);
    if (with_trees && process > 0 && !pending_call(local_rank, /*synchronous=*/true))
      read.trees.emplace(read.targets.size(), TreeLook(process, all, left));
    read.targets.push_back({.rank = ring.rank, .pid = ring.pid, .process = process, .file = file});
  }
  if (read.trees.empty())
    return stack_reader_.read(read.targets, look, patience, std::move(read.done));
  pending_.push_back(std::move(read));
  call_after(look_again_timer_, kBetweenLooks, [this] { look_again(); });
}

void OwnRanks::look_again() {
  HostEvidence memory = callbacks_.memory();
  memory.more_kills = true;  // Only the kernel's log names those that were killed.
  for (PendingRead& read : std::exchange(pending_, {})) {
    for (const auto& [target, tree] : read.trees)
      read.targets[target].tree = tree.finish(memory);
    stack_reader_.read(read.targets, read.look, read.patience, std::move(read.done));
  }
}

void OwnRanks::look_before_kill(const group::ReportStopping& stop, Duration grace) {
  const Duration lead = std::min<Duration>(kLookBeforeKill, grace / 2);
  if (stop.live.empty() || stop.left <= lead) return;
  call_after(look_timer_, stop.left - lead,
             [this, lead, attempt = job_.attempt(), live = stop.live] {
               read_stacks(live, StackLook::brief, lead * 3 / 4, [this, attempt](auto read) {
                 if (attempt == job_.attempt()) last_look_ = std::move(read);
               });
             });
}

std::vector<LeftRank> OwnRanks::left_ranks() const {
  std::vector<LeftRank> left;
  const std::vector<AtStop> now = processes_.look();
  for (int i = 0; i < job_.round().local_world_size; ++i) {
    if (now[static_cast<size_t>(i)] >= AtStop::exiting) continue;
    LeftRank& rank = left.emplace_back();
    rank.rank = job_.round().base_rank + i;
    const auto seen = std::ranges::find(last_look_, processes_.pid(i), &RankStacks::pid);
    rank.missing =
        seen == last_look_.end() ? "its stacks could not be read in time" : seen->missing;
    if (seen != last_look_.end() && !seen->threads.empty()) rank.where = main_line(*seen);
    const std::optional<CallLine> call = pending_call(i, /*synchronous=*/true);
    if (!call) continue;
    rank.call = fmt::format("{} #{}", call->operation, call->ordinal);
    rank.group = callbacks_.name_of_group(call->group);
  }
  return left;
}

}  // namespace muster
