#include "agent/job/meeting_part.h"

#include <algorithm>

#include <unistd.h>

#include "agent/job/node_setup.h"
#include "agent/letter.h"
#include "agent/process/master_port.h"
#include "agent/process/process_tree.h"
#include "agent/report/failure_wire.h"
#include "rendezvous/base/steady_now.h"

namespace muster {

MeetingPart::MeetingPart(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
                         const Environment& environment, const Parts& parts,
                         std::function<void(const group::RequestRound&)> begin)
    : io_(io),
      job_(job),
      spec_(spec),
      parts_(parts),
      begin_(std::move(begin)),
      is_coordinated_(muster::is_coordinated(spec.rendezvous)),
      facts_(io, job, spec.rendezvous, environment, parts.processes),
      own_interface_(io, spec.rendezvous, environment),
      own_task_(io, job, spec.task),
      announcer_(job, spec, parts.record) {}

// ---- opening

Rendezvous::Handlers MeetingPart::handlers() {
  Rendezvous::Handlers handlers;
  handlers.round = [this](const membership::Round& round) { on_round(round); };
  handlers.stop = [this](const member::StopWorkers& stop) { on_stop_order(stop); };
  handlers.leave_announced = [this] {
    if (leaving_signal_) job_.post(group::StopRequested{*leaving_signal_});
  };
  handlers.datagram = [this](const membership::Delivered& datagram) { on_datagram(datagram); };
  handlers.ended = [this](const membership::End& end) {
    heard_end_ = heard_end_ || !job_end_;
    on_job_ended(end);
  };
  handlers.failed = [this](const Error& error) { on_failed(error); };
  handlers.say = [this](const std::string& text) {
    job_.say(text);
    if (round_ == RoundStage::wanted) parts_.record.note(JobEventKind::waiting, text);
  };
  handlers.keys_awaited = [this](membership::Epoch epoch, const std::vector<AwaitedKeys>& waits) {
    if (epoch == job_round_.epoch) parts_.hang_part.keys_awaited(waits);
  };
  handlers.store_full = [this](const std::string& text) {
    job_.say(text);
    parts_.record.store_is_full(text);
  };
  return handlers;
}

void MeetingPart::open(const NodeFacts& node, std::function<void(const Result<NodeFacts>&)> done) {
  facts_.find(node, [this, done = std::move(done)](const Result<NodeFacts>& found) {
    if (!found) return done(found);
    done(go(*found).map([&found] { return *found; }));
  });
}

void MeetingPart::cancel() {
  facts_.cancel();
  own_task_.cancel();
}

Result<void> MeetingPart::go(const NodeFacts& node) {
  node_ = node;
  RendezvousOptions options = rendezvous_options(spec_, node);
  options.connections_max = connections_beside(node.workers);
  options.judge = judge_testimonies;
  options.clients.users = [agent = ::getpid()] { return users_below(agent); };
  Result<std::unique_ptr<Rendezvous>> rendezvous =
      make_rendezvous(io_, std::move(options), handlers());
  if (!rendezvous) {
    return tl::unexpected<Error>(
        name_port_owner(rendezvous.error(), spec_.rendezvous.endpoint_port.value_or(0)));
  }
  rendezvous_ = std::move(*rendezvous);
  if (is_coordinated_) own_interface_.look_up_own_name();
  return {};
}

// ---- what happens on this node

void MeetingPart::want_round(const group::RequestRound& request) {
  if (!job_.has_workers()) return;
  parts_.hang_part.end();  // Its last message belongs to the old epoch.
  request_ = request;
  round_ = RoundStage::wanted;
  rendezvous_->tell(member::ReadyForRound{});
}

void MeetingPart::worker_failed(const group::WorkerFailed& failure) {
  announcer_.hold(failure);
  const group::FirstFailure& first = failure.first;
  membership::NodeFailure report;
  report.sentence = first.status ? describe(*first.status) : first.why;
  report.final = first.is_final;
  if (first.status) {
    report.exit_code = std::max(1, first.status->code());
    report.signal = first.status->signal();
  }
  report_failure(std::move(report), first.local_rank);
}

void MeetingPart::node_failed(const Error& error, int local_rank) {
  if (!is_coordinated_) return;
  parts_.record.node_failed(error);
  tell_evidence(job_round_.epoch);
  membership::NodeFailure failure;
  failure.exit_code = static_cast<int>(error.code);
  failure.sentence = error.message;
  failure.final = true;
  report_failure(std::move(failure), local_rank);
}

void MeetingPart::report_failure(membership::NodeFailure failure, int local_rank) {
  if (!is_coordinated_) return;
  failure.rank = job_.round().base_rank + local_rank;
  failure.local_rank = local_rank;
  failure.at = steady_now();
  rendezvous_->tell(member::WorkerFailed{job_round_.epoch, std::move(failure)});
}

// No-op for a node without evidence.
void MeetingPart::report_evidence(membership::Epoch epoch) {
  if (is_coordinated_ && rendezvous_ && parts_.record.has_evidence()) tell_evidence(epoch);
}

void MeetingPart::tell_evidence(membership::Epoch epoch) {
  const Instant now = steady_now();
  rendezvous_->tell(member::EvidenceFound{
      epoch, {now, Duration{0}, encode_evidence(parts_.record.evidence(), now)}});
}

void MeetingPart::testify(membership::Epoch epoch) {
  report_evidence(epoch);
  if (is_coordinated_ && epoch > 0) rendezvous_->tell(member::Testified{epoch});
}

// Waits until their last calls have been compared: a mismatch is reported only while the job lasts.
void MeetingPart::workers_done() {
  parts_.hang_part.when_judged([this, epoch = job_round_.epoch] {
    if (!job_.is_ending()) rendezvous_->tell(member::WorkersDone{epoch});
  });
}

void MeetingPart::leave(int signal) {
  if (leaving_signal_) return;
  leaving_signal_ = signal;
  rendezvous_->tell(member::Leaving{signal, false, parts_.engine.workers_are_told()});
}

void MeetingPart::close(std::function<void()> next) {
  if (!rendezvous_) return next();
  if (leaving_signal_) rendezvous_->tell(member::Leaving{*leaving_signal_, true});
  rendezvous_->close(std::move(next));
}

// ---- what the others decide

void MeetingPart::on_round(const membership::Round& round) {
  if (round_ != RoundStage::wanted || !job_.has_workers()) return;
  parts_.answers.begin(round);
  job_round_ = round;
  parts_.engine.seat(round.node_rank, round.nodes);
  parts_.time_limit.watch();
  // The round may end before its first worker starts; the verdict is about its world all the same.
  if (job_.attempt() < 0) parts_.record.round_formed(view(round.restarts));
  round_ = RoundStage::opening;
  own_interface_.when_own_name_is_known([this] {
    const std::string note =
        is_coordinated_ ? own_interface_.choose(rendezvous_->address_towards_peers()) : "";
    if (!note.empty() && own_task_.is_first()) job_.say(note);
    // The output of the old attempt may still be waiting for a slow disk.
    parts_.drain.when_done([this] {
      announcer_.say_job_restart(job_round_);
      find_place();
    });
  });
}

// A round that was ended meanwhile begins all the same: its attempt notices (end_opening()).
void MeetingPart::find_place() {
  if (!job_.has_workers()) return;
  if (round_ == RoundStage::dropped) return begin_(request_);
  own_task_.find(job_round_, [this](const Result<void>& found) {
    if (found || round_ == RoundStage::dropped) return begin_(request_);
    node_failed(found.error());
    job_.post(group::RoundFailed{request_.attempt, found.error()});
  });
}

void MeetingPart::on_stop_order(const member::StopWorkers& stop) {
  const bool changed = stop.why != membership::StopWhy::failure;
  parts_.record.note(changed ? JobEventKind::membership_changed : JobEventKind::note, stop.text);
  if (!job_.has_workers()) return;
  // A failure on this node is reported in more detail, once its last output is read.
  const bool is_said = stop.why != membership::StopWhy::host && another_says_it();
  if (!announcer_.holds_failure() && !stop.text.empty() && !is_said) job_.say(stop.text);
  if (stop.epoch != job_round_.epoch) return;
  if (round_ == RoundStage::opening || round_ == RoundStage::dropped) {
    round_ = RoundStage::dropped;
    return;
  }
  const auto regroup = [this, attempt = job_.attempt()] { job_.post(group::Regroup{attempt}); };
  if (stop.why != membership::StopWhy::left_by_signal_to_all) return regroup();
  parts_.engine.await_own_stop(regroup);
}

void MeetingPart::on_datagram(const membership::Delivered& datagram) {
  if (datagram.epoch != job_round_.epoch || datagram.payload.empty()) return;
  const auto kind = static_cast<Letter>(datagram.payload.front());
  if (kind == Letter::question || kind == Letter::answer)
    return parts_.answers.on_letter(datagram.from, datagram.payload);
  if (kind == Letter::warning)
    return parts_.engine.on_letter(datagram.from, datagram.payload.substr(1));
  parts_.hang_part.hear(datagram);
}

void MeetingPart::on_job_ended(const membership::End& end) {
  if (job_end_) return;
  job_end_ = end;
  job_.post(group::JobEnded{});
}

void MeetingPart::on_failed(const Error& error) {
  const Error shown = name_port_owner(error, spec_.rendezvous.endpoint_port.value_or(0));
  if (!job_.has_workers() || job_end_) return;
  if (!is_coordinated_) return job_.post(group::RoundFailed{request_.attempt, shown});
  membership::End end;
  // Without a host the job cannot go on.
  end.why = job_.attempt() < 0 ? membership::EndWhy::timeout : membership::EndWhy::lost;
  end.exit_code = static_cast<int>(error.code);
  end.text = shown.message;
  on_job_ended(end);
}

// ---- what is known

int MeetingPart::node_rank() const {
  if (job_round_.epoch > 0) return job_round_.node_rank;
  return spec_.rendezvous.node_rank.value_or(is_coordinated_ ? -1 : 0);
}

RoundView MeetingPart::view(int restart_count) const {
  RoundView round;
  static_cast<membership::Round&>(round) = job_round_;
  round.restarts = restart_count;
  round.local_world_size = node_.workers;
  round.role = spec_.role;
  round.agent_store = true;
  round.max_restarts = spec_.max_restarts;
  round.start_count = spec_.engine.starts;
  round.run_id = node_.run_id;
  return round;
}

std::string MeetingPart::status() const {
  return is_coordinated_ && rendezvous_ ? rendezvous_->status() : std::string();
}

void MeetingPart::find_nodes(std::function<void(std::vector<membership::NodeLine>)> done) {
  if (!rendezvous_) return done({});
  rendezvous_->nodes(std::move(done));
}

void MeetingPart::send(int to, std::string payload) {
  if (!is_coordinated_ || !rendezvous_) return;
  const Instant now = steady_now();
  rendezvous_->send({job_round_.epoch, to, now, Duration{0}, std::move(payload)});
}

bool MeetingPart::another_says_the_end(const JobReport& report) const {
  return announcer_.another_says_the_end(
      job_round_, report, {heard_end_, parts_.engine.is_told(), job_end_ ? job_end_->teller : -1});
}

}  // namespace muster
