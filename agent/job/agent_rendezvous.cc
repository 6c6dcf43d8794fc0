// The agent's part in the rendezvous: tells the job's other nodes what this node's workers do, and
// carries out their decisions. A job of one node takes the same path, but its Rendezvous only opens
// a store.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "agent/job/agent_loop.h"
#include "agent/job/rendezvous_options.h"
#include "agent/letter.h"
#include "agent/meeting/launch_traces.h"
#include "agent/meeting/pmi_child.h"
#include "agent/meeting/reachable.h"
#include "agent/process/master_port.h"
#include "agent/process/process_tree.h"
#include "agent/report/failure_wire.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/drive.h"
#include "rendezvous/net/interfaces.h"

namespace muster {

namespace {

constexpr int kNodeTries = 20;
constexpr auto kNodePause = std::chrono::milliseconds(100);

}  // namespace

// ---- opening

void AgentLoop::find_token(std::function<void(std::string)> next) {
  const RendezvousSpec& rendezvous = spec_.rendezvous;
  if (!coordinated_ || !rendezvous.token_file) return next(rendezvous.token.value_or(""));
  output_->perform([this, path = *rendezvous.token_file, next = std::move(next)] {
    boost::asio::post(io_, [this, next, token = membership::read_token_file(path)] {
      if (ending_) return;
      if (!token) return fail_early(token.error());
      next(*token);
    });
  });
}

// The launch that started this agent and the others names its rank 0's host, and itself.
void AgentLoop::find_host_by_pmi(std::function<void()> next) {
  const RendezvousSpec& rendezvous = spec_.rendezvous;
  if (!rendezvous.ask_pmi) return next();
  const std::string reached = rendezvous.local_addr.value_or(reachable_text(read_interfaces()));
  ask_pmi(driver_, environment_, reached, kPmiPatience,
          [this, next = std::move(next)](const Result<PmiAnswer>& answer) {
            if (ending_) return;
            if (!answer) return fail_early(answer.error());
            if (answer->rank != spec_.rendezvous.node_rank) {
              return fail_early(
                  {ExitCode::rendezvous,
                   fmt::format("PMI says that this is rank {}, the variables say {}: is this a "
                               "launch within another one? Give --engine none and the flags about "
                               "nodes",
                               answer->rank, spec_.rendezvous.node_rank.value_or(0))});
            }
            pmi_host_ = answer->host;
            pmi_job_ = answer->job;
            if (spec_.rendezvous.id.empty()) run_id_ = answer->job;
            inherited_ = without_launch(environment_);
            next();
          });
}

bool AgentLoop::open_rendezvous(const std::string& token) {
  Rendezvous::Handlers handlers;
  handlers.round = [this](const membership::Round& round) { on_round(round); };
  handlers.stop = [this](const member::StopWorkers& stop) { on_stop_order(stop); };
  handlers.leave_announced = [this] { on_leave_announced(); };
  handlers.datagram = [this](const membership::Delivered& datagram) { on_datagram(datagram); };
  handlers.ended = [this](const membership::End& end) {
    heard_end_ = heard_end_ || !job_end_;
    on_job_ended(end);
  };
  handlers.failed = [this](const Error& error) { on_rendezvous_failed(error); };
  handlers.say = [this](const std::string& text) {
    say(text);
    if (wanted_round_) record_.note(JobEventKind::waiting, text);
  };
  handlers.store_full = [this](const std::string& text) {
    say(text);
    record_.store_is_full(text);
  };
  RendezvousOptions options = rendezvous_options(
      spec_, {setup_.workers, own_hostname(), run_id_, token, pmi_host_, pmi_job_});
  options.connections_max = connections_beside(setup_.workers);
  options.judge = judge_testimonies;
  options.worker_users = [agent = ::getpid()] { return users_below(agent); };
  Result<std::unique_ptr<Rendezvous>> rendezvous =
      make_rendezvous(io_, std::move(options), std::move(handlers));
  if (!rendezvous) {
    fail_early(name_port_owner(rendezvous.error(), spec_.rendezvous.endpoint_port.value_or(0)));
    return false;
  }
  rendezvous_ = std::move(*rendezvous);
  if (coordinated_) own_interface_.look_up_own_name();
  return true;
}

// ---- what the workers do

// Old workers are reaped, their output is complete or took too long: now a round may form with us.
void AgentLoop::request_round(const group::RequestRound& request) {
  if (group_->finished()) return;
  hang_part_.end();  // Its last message is still of the old epoch.
  wanted_round_ = request;
  rendezvous_->ready();
}

void AgentLoop::report_failure(int local_rank, int exit_code, std::string sentence, bool final) {
  if (!coordinated_) return;
  membership::NodeFailure failure;
  failure.rank = round_.base_rank + local_rank;
  failure.local_rank = local_rank;
  failure.final = final;
  failure.exit_code = exit_code;
  failure.sentence = std::move(sentence);
  failure.at = to_instant(std::chrono::steady_clock::now());
  rendezvous_->worker_failed(job_round_.epoch, std::move(failure));
}

void AgentLoop::report_failure(const Error& error, int local_rank) {
  if (!coordinated_) return;
  record_.node_failed(error);
  tell_evidence(job_round_.epoch);
  report_failure(local_rank, static_cast<int>(error.code), error.message, true);
}

// The attempt's output is complete: the job's judge gets what the workers of this node left behind.
// A node without failures has nothing to report.
void AgentLoop::report_evidence(membership::Epoch epoch) {
  if (coordinated_ && record_.has_evidence()) tell_evidence(epoch);
}

void AgentLoop::tell_evidence(membership::Epoch epoch) {
  const Instant now = to_instant(std::chrono::steady_clock::now());
  rendezvous_->evidence_found(epoch, {now, Duration{0}, encode_evidence(record_.evidence(), now)});
}

// The node that judges may still find a mismatch in their last calls, and says so while the job
// lasts.
void AgentLoop::on(const group::Succeeded&) {
  const auto tell = [this, epoch = job_round_.epoch] {
    if (!ending_) rendezvous_->workers_done(epoch);
  };
  hang_part_.when_judged(tell);
}

// ---- what the others decide

void AgentLoop::on_round(const membership::Round& round) {
  if (!wanted_round_ || group_->finished()) return;
  answers_.begin(round);
  job_round_ = round;
  engine_.seat(round.node_rank, round.nodes);
  time_limit_.watch();
  // Its end may come before its first worker: the verdict is about this world all the same.
  if (attempt_ < 0) record_.round_formed(round_view(round.restarts));
  opening_round_ = true;
  own_interface_.when_own_name_is_known(
      [this, request = *std::exchange(wanted_round_, std::nullopt)] {
        const bool said_by_another = task_ && task_->local_rank > 0;
        const std::string note =
            coordinated_ ? own_interface_.choose(rendezvous_->address_towards_peers()) : "";
        if (!note.empty() && !said_by_another) say(note);
        // The output of the old attempt may still be waiting for a slow disk.
        drain_.when_done([this, request] {
          say_job_restart();
          find_node_of_task(request, kNodeTries);
        });
      });
}

// An engine that says only which tasks share this node: the nodes are numbered by their first
// tasks. Those never move.
void AgentLoop::find_node_of_task(const group::RequestRound& request, int tries_left) {
  if (group_->finished()) return;
  if (!task_ || task_->nodes > 0 || round_dropped_) return open_round(request);
  if (tries_left == 0) {
    const Error error{
        ExitCode::rendezvous,
        "the host of the job does not say which tasks share this node: their machines' "
        "host names have to differ; start one task on each node"};
    report_failure(error, 0);
    return drive_->post(group::RoundFailed{request.attempt, error});
  }
  rendezvous_->nodes([this, request, tries_left](const std::vector<membership::NodeLine>& lines) {
    if (ending_) return;
    const auto place = place_on_nodes(lines, job_round_.node_rank, job_round_.nodes);
    if (place && place->sharing == task_->local_size) {
      task_->node = place->node;
      task_->nodes = place->nodes;
      return open_round(request);
    }
    call_after(pause_, kNodePause,
               [this, request, tries_left] { find_node_of_task(request, tries_left - 1); });
  });
}

// The engine started all nodes of this job: their output comes to one console.
bool AgentLoop::shares_console() const {
  const RendezvousSpec& nodes = spec_.rendezvous;
  return coordinated_ && spec_.engine.one_console &&
         (nodes.ask_pmi || !nodes.ports_of_node_0.empty());
}

// Whether what all nodes are told appears on this console without this node: they share it, and
// node rank 0 is there. In a job of a fixed number of nodes it is the host, so its process lives
// while any node is told anything by the job; in an elastic one it is in the newest round. What the
// engine tells all, it tells node 0.
bool AgentLoop::another_says_it() const {
  const RendezvousSpec& nodes = spec_.rendezvous;
  if (!shares_console()) return false;
  if (nodes.nnodes_min == nodes.nnodes_max) return nodes.node_rank.value_or(0) > 0;
  return job_round_.epoch > 0 && job_round_.node_rank > 0;
}

// Processes that remain, and workers that outlived the grace or failed in it, are this node's
// alone.
bool AgentLoop::another_says_the_end(const JobReport& report) const {
  const bool failed = report.end == JobEnd::stopped && !report.failed_in_stop.empty();
  if (report.end == JobEnd::unkillable || failed || !shares_console()) return false;
  const RendezvousSpec& nodes = spec_.rendezvous;
  const int teller = heard_end_ && nodes.nnodes_min < nodes.nnodes_max ? job_end_->teller : -1;
  if (teller >= 0) return job_round_.epoch == 0 || job_round_.node_rank != teller;
  const bool all_know = heard_end_ || (engine_.is_told() && report.killed_ranks.empty());
  return all_know && another_says_it();
}

// All nodes know the same line: the round came with the verdict over all of them.
void AgentLoop::say_job_restart() {
  failed_.reset();
  if (!job_round_.before || attempt_ < 0) return;
  const Result<JudgedAttempt> told = decode_verdict(job_round_.before->detail);
  record_.take_verdict(told ? *told : verdict_in_short(*job_round_.before));
  const int left = std::max(0, spec_.max_restarts - job_round_.restarts);
  const std::string line = record_.restart_line(left, Duration{0});
  if (!line.empty() && !another_says_it()) say(line);
}

void AgentLoop::on_stop_order(const member::StopWorkers& stop) {
  const bool changed = stop.why != membership::StopWhy::failure;
  record_.note(changed ? JobEventKind::membership_changed : JobEventKind::note, stop.text);
  if (group_->finished()) return;
  // A failure on this node is reported in more detail, once its last output is read.
  const bool is_said = stop.why != membership::StopWhy::host && another_says_it();
  if (!failed_ && !stop.text.empty() && !is_said) say(stop.text);
  if (stop.epoch != job_round_.epoch) return;
  if (opening_round_) {
    round_dropped_ = true;
    return;
  }
  if (stop.why == membership::StopWhy::left_by_signal_to_all) {
    return engine_.await_own_stop([this, attempt = attempt_] { post(group::Regroup{attempt}); });
  }
  drive_->post(group::Regroup{attempt_});
}

void AgentLoop::send(int to, std::string payload) {
  if (!coordinated_ || !rendezvous_) return;
  const Instant now = to_instant(std::chrono::steady_clock::now());
  rendezvous_->send({job_round_.epoch, to, now, Duration{0}, std::move(payload)});
}

void AgentLoop::on_datagram(const membership::Delivered& datagram) {
  if (datagram.epoch != job_round_.epoch || datagram.payload.empty()) return;
  const auto kind = static_cast<Letter>(datagram.payload.front());
  if (kind == Letter::question || kind == Letter::answer)
    return answers_.on_letter(datagram.from, datagram.payload);
  if (kind == Letter::warning) return engine_.on_letter(datagram.from, datagram.payload.substr(1));
  hang_part_.hear(datagram);
}

void AgentLoop::on_leave_announced() {
  if (leaving_signal_) drive_->post(group::StopRequested{*leaving_signal_});
}

void AgentLoop::on_job_ended(const membership::End& end) {
  if (job_end_) return;
  job_end_ = end;
  if (!group_->finished()) drive_->post(group::JobEnded{});
}

void AgentLoop::on_rendezvous_failed(const Error& error) {
  const Error shown = name_port_owner(error, spec_.rendezvous.endpoint_port.value_or(0));
  if (group_->finished() || job_end_) return;
  if (!coordinated_) return drive_->post(group::RoundFailed{wanted_round_->attempt, shown});
  membership::End end;
  // Without a host the job cannot go on.
  end.why = attempt_ < 0 ? membership::EndWhy::timeout : membership::EndWhy::lost;
  end.exit_code = static_cast<int>(error.code);
  end.text = shown.message;
  on_job_ended(end);
}

}  // namespace muster
