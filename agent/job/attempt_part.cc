#include "agent/job/attempt_part.h"

#include <memory>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "agent/report/failure_wire.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kLastWordsPatience = std::chrono::seconds(2);

}  // namespace

AttemptPart::AttemptPart(boost::asio::io_context& io, JobSeam& job, const AgentInput& input,
                         const AgentContext& context, const JobFolders& folders,
                         const NodeSetup& setup, const Parts& parts)
    : io_(io),
      job_(job),
      environment_(input.environment),
      temp_dir_(folders.temp_dir),
      setup_(setup),
      parts_(parts),
      last_words_limit_(io),
      timers_(io, job, input.environment, parts.processes, parts.record),
      start_(input, context, setup, parts.meeting, parts.control, timers_, parts.rings),
      remains_(io, parts.record, parts.output, parts.rings, folders, input.program.executable) {}

void AttemptPart::cancel() {
  timers_.cancel();
  last_words_limit_.cancel();
}

void AttemptPart::prepare(const group::RequestRound& request) {
  parts_.drain.begin();  // on_empty() did not do it if no worker could be started.
  const auto told = std::make_shared<bool>(false);
  const auto go_on = [this, request, told] {
    if (std::exchange(*told, true)) return;
    if (!parts_.meeting.is_coordinated()) parts_.meeting.say_restart();
    requested_ = std::chrono::steady_clock::now();
    if (request.attempt == 0) return open_timers(request);
    parts_.driver.when_memory_is_free([this, request] { open_timers(request); });
  };
  parts_.drain.when_done([this, go_on, epoch = parts_.meeting.round().epoch] {
    parts_.meeting.testify(epoch);
    go_on();
  });
  if (*told || !parts_.meeting.is_coordinated()) return;
  // Limits how long the other nodes wait for this node's disk before the next round or the verdict.
  call_after(last_words_limit_, kLastWordsPatience, go_on);
}

void AttemptPart::open_timers(const group::RequestRound& request) {
  timers_.open(temp_dir_, [this, request](const Result<void>& opened) {
    if (!opened) return job_.post(group::RoundFailed{request.attempt, opened.error()});
    parts_.meeting.want_round(request);
  });
}

void AttemptPart::open(const group::RequestRound& request) {
  MeetingPart& meeting = parts_.meeting;
  parts_.record.round_formed(meeting.view(request.restart_count));
  if (!job_.has_workers()) return;
  attempt_ = request.attempt;
  round_ =
      meeting.view(meeting.is_coordinated() ? meeting.round().restarts : request.restart_count);
  // torch's own switch: the workers create the store, at a port that reaches no earlier attempt.
  round_.agent_store =
      meeting.is_coordinated() || lookup(environment_, env::kDisableShareStore) != "1";
  if (!round_.agent_store) {
    Result<MasterPort> port = MasterPort::reserve();
    if (!port) return job_.post(group::RoundFailed{attempt_, port.error()});
    master_port_ = std::move(*port);
    round_.master_port = master_port_->port();
  }
  parts_.processes.begin_attempt(setup_.workers);
  parts_.hang_part.end();
  parts_.rings.begin_attempt(setup_.workers);
  parts_.hang_part.begin(meeting.round().epoch);
  parts_.stop.begin_attempt();
  timers_.begin_attempt(setup_.workers);
  AttemptPlan plan;
  plan.restart_count = round_.restarts;
  for (int i = 0; i < setup_.workers; ++i)
    plan.ranks.push_back(round_.base_rank + i);
  parts_.output.open_attempt(std::move(plan), [this, attempt = attempt_](auto streams) {
    boost::asio::post(io_, [this, attempt, streams = std::move(streams)]() mutable {
      on_streams(attempt, std::move(streams));
    });
  });
}

void AttemptPart::on_streams(int attempt, Result<std::vector<WorkerStreams>> streams) {
  const bool is_wanted = parts_.meeting.end_opening();
  if (!job_.has_workers() || attempt != attempt_) return;
  if (!streams) {
    parts_.meeting.node_failed(streams.error());
    return job_.post(group::RoundFailed{attempt, streams.error()});
  }
  streams_ = std::move(*streams);
  parts_.drain.open();
  if (!is_wanted) {
    // The round was ended before any of its workers was started here.
    parts_.drain.begin();
    return parts_.drain.when_done([this, request = group::RequestRound{attempt_, round_.restarts}] {
      parts_.meeting.want_round(request);
    });
  }
  traces_.clear();
  for (size_t i = 0; i < streams_.size(); ++i) {
    traces_.push_back({streams_[i].out_log, streams_[i].err_log, streams_[i].error_file,
                       setup_.placement.workers[i].device});
  }
  remains_.begin_attempt();
  const Duration took = std::chrono::steady_clock::now() - requested_;
  parts_.record.round_ready(attempt, round_, took, traces_);
  job_.post(group::RoundReady{attempt, round_.restarts});
}

void AttemptPart::spawn(const group::Spawn& effect) {
  spawn_pending_ = true;
  boost::asio::post(io_, [this, effect] { start_worker(effect.attempt, effect.local_rank); });
}

void AttemptPart::start_worker(int attempt, int local_rank) {
  spawn_pending_ = false;
  if (!job_.has_workers() || attempt != attempt_) return;
  WorkerStreams& streams = streams_[static_cast<size_t>(local_rank)];
  const Result<pid_t> pid =
      parts_.processes.start(local_rank, start_.request(local_rank, round_, streams));
  parts_.rings.close_descriptor();
  streams.out.reset();
  streams.err.reset();
  if (pid) {
    parts_.record.worker_started(local_rank, *pid);
    parts_.hang_part.started(local_rank, *pid,
                             setup_.placement.workers[static_cast<size_t>(local_rank)].device);
    job_.post(group::Spawned{attempt, local_rank, *pid});
  } else {
    parts_.meeting.node_failed(pid.error(), local_rank);
    job_.post(group::SpawnFailed{attempt, local_rank, pid.error()});
  }
  if (std::exchange(empty_while_spawning_, false)) parts_.processes.watch_empty();
}

void AttemptPart::on_exit(const WorkerExit& exit) {
  const bool has_failed = !exit.status.success();
  parts_.record.worker_exited(exit, has_failed ? remains_.gather(exit) : HostEvidence{});
  if (has_failed) {
    parts_.record.worker_was_in(exit.local_rank, parts_.own_ranks.call_in_flight(exit.local_rank));
    parts_.stop.worker_failed(remains_.may_be_victim(exit));
  }
  parts_.hang_part.ended(exit.local_rank, exit.status.signed_code());
  timers_.forget(exit.pid);
  job_.post(group::Exited{attempt_, exit.local_rank, exit.status});
}

// A stop between the machine's Spawn and the actual spawn finds no live process. That does not mean
// an empty group yet: the machine relies on receiving Spawned first.
void AttemptPart::on_empty() {
  if (spawn_pending_) {
    empty_while_spawning_ = true;
    return;
  }
  parts_.own_ranks.end_look();
  if (parts_.stop.has_begun()) parts_.record.stop_ended();
  parts_.drain.begin();
  job_.post(group::GroupEmpty{attempt_});
}

// The attempt's output is complete before the next step or the verdict. The machine does not wait
// for it: a console that is not read must not count as a process that does not die.
void AttemptPart::read_to_the_ends() {
  // Streams of workers that were never started would keep the drain from reaching end of file.
  streams_.clear();
  parts_.bundles.close();
  const bool keep = parts_.meeting.is_coordinated() || !parts_.record.all_succeeded();
  remains_.read(keep, traces_,
                [this](const AttemptRemains& remains) { parts_.drain.finish(remains); });
}

// Writes the judge's input, for users who want to know why it decided as it did.
void AttemptPart::take_remains(const AttemptRemains& remains) {
  parts_.record.attempt_drained(remains);
  if (!parts_.stop.has_begun() || !parts_.record.has_evidence()) return;
  const Instant now = steady_now();
  parts_.output.write_file(fmt::format("evidence_{}.json", attempt_),
                           evidence_file(parts_.record.evidence(), now));
}

}  // namespace muster
