// Member: orders, the workers' events, our own leaving, and its lines for people.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using membership::Phase;
using membership::StopWhy;

namespace {

constexpr size_t kSentKept = 16;
constexpr Duration kUnknownClock = std::chrono::hours{24 * 365};

}  // namespace

// ---- Orders.

void Member::hear(Instant now, const membership::Order& message) {
  if (link_ != Link::joined) return;
  heard_at_ = now;
  if (message.sequence <= report_.order) return;
  report_.order = message.sequence;
  std::visit([&](const auto& what) { obey(now, what); }, message.what);
}

void Member::obey(Instant now, const membership::Wait& what) {
  gave_round_up_ = false;
  is_spare_ = what.spare;
  wait_text_ = what.text;
  if (!what.text.empty() && !going()) out_->push_back(member::Say{what.text});
  send_report(now);
}

void Member::obey(Instant now, const membership::Round& what) {
  if (report_.phase != Phase::ready || ended_ || what.epoch <= report_.epoch) {
    return send_report(now);
  }
  report_.phase = Phase::running;
  report_.epoch = what.epoch;
  report_.reaped = false;
  report_.failure.reset();
  report_.evidence.reset();
  failure_sent_ = evidence_sent_ = 0;
  evidence_arrived_ = false;
  gave_round_up_ = is_spare_ = false;
  wait_text_.clear();
  rank_refused_at_.reset();
  round_instance_ = host_instance_;
  join_.last_epoch = what.epoch;
  join_.last_instance = host_instance_;
  join_.last_rank = what.node_rank;
  join_.last_nodes = what.nodes;
  join_.restarts = what.restarts;
  join_.changes = what.changes;
  out_->push_back(member::RoundFormed{what});
  send_report(now);
}

void Member::obey(Instant now, const membership::Stop& what) {
  if (report_.phase == Phase::leaving) {
    leave_told_ = true;
    announce_leave();
    send_report(now);
    return say_goodbye_if_due();
  }
  if (report_.phase == Phase::ready && what.epoch > report_.epoch) {
    report_.epoch = join_.last_epoch = what.epoch;
    join_.last_instance = host_instance_;
  }
  if (in_round() && what.epoch == report_.epoch) return stop_round(now, what.why, what.text);
  send_report(now);
}

void Member::obey(Instant now, const membership::End& what) {
  if (!ended_) {
    ended_ = true;
    membership::End end = what;
    const bool undone = gave_round_up_ || report_.phase == Phase::running;
    const bool surplus = join_.last_epoch == 0 && membership::is_fixed(join_);
    if ((undone || surplus) && what.why == membership::EndWhy::success) {
      end.why = membership::EndWhy::lost;
      end.exit_code = static_cast<int>(ExitCode::rendezvous);
      end.text = surplus
                     ? "the job has ended without this node: all its places were taken"
                     : "this node lost its host and stopped its workers; the other nodes succeeded";
    }
    out_->push_back(member::JobEnded{std::move(end)});
    announce_leave();
  }
  if (in_round() && !report_.reaped) report_.phase = Phase::stopping;
  if (report_.reaped) return all_reaped(now);
  send_report(now);
}

// The job has ended without us.
void Member::end_late(Instant now, const membership::End& over) {
  ended_ = true;
  out_->push_back(
      member::Say{fmt::format("the job that met at {} is over: {}", options_.endpoint, over.text)});
  out_->push_back(member::JobEnded{over});
  if (report_.reaped) return end();
  report_.phase = Phase::stopping;
  pause(now);
}

// Ends successfully without a host: all workers of this node have exited with 0.
void Member::end_alone(Instant now) {
  membership::End end;
  end.text = fmt::format(
      "no contact with its host ({}), and all workers of this node have exited with 0", trouble_);
  end_late(now, end);
}

// No-op unless a round of ours runs.
void Member::stop_round(Instant now, StopWhy why, std::string text) {
  if (!in_round() || ended_) return;
  gave_round_up_ = why == StopWhy::host;
  report_.phase = Phase::stopping;
  out_->push_back(member::StopWorkers{report_.epoch, why, std::move(text)});
  send_report(now);
}

// ---- The workers.

void Member::on(Instant now, const member::ReadyForRound&) {
  if (going()) return all_reaped(now);
  if (report_.phase == Phase::ready) return;
  report_.phase = Phase::ready;
  report_.reaped = true;
  send_report(now);
}

void Member::on(Instant now, const member::WorkersDone& event) {
  if (report_.phase != Phase::running || event.epoch != report_.epoch) return;
  report_.phase = Phase::done;
  report_.reaped = true;
  send_report(now);
}

void Member::on(Instant now, const member::WorkerFailed& event) {
  if (event.epoch != report_.epoch || report_.phase == Phase::done) return;
  if (report_.failure == event.failure) return;
  if (report_.phase == Phase::running) report_.phase = Phase::stopping;
  report_.failure = event.failure;
  failure_sent_ = 0;
  send_report(now);
}

void Member::on(Instant now, const member::EvidenceFound& event) {
  if (event.epoch != report_.epoch || report_.evidence == event.evidence) return;
  report_.evidence = event.evidence;
  evidence_arrived_ = false;
  evidence_sent_ = 0;
  send_report(now);
}

void Member::on(Instant now, const member::Testified& event) {
  if (ended_ || report_.phase != Phase::stopping || event.epoch != report_.epoch) return;
  report_.phase = Phase::testified;
  report_.reaped = true;
  send_report(now);
}

void Member::on(Instant now, const member::Leaving& event) {
  if (event.reaped) report_.reaped = true;
  if (report_.phase != Phase::leaving) {
    report_.phase = Phase::leaving;
    report_.signal = event.signal;
    report_.to_all = event.to_all;
    if (!ended_) {
      send_report(now);
      announce_by_ = now + options_.announce_patience;
    }
    if (ended_ || link_ != Link::joined) announce_leave();
  }
  if (event.reaped) all_reaped(now);
}

// Nothing of ours is alive any more, and we are leaving or the job has ended.
void Member::all_reaped(Instant now) {
  report_.reaped = true;
  if (goodbye_by_ == kNever) goodbye_by_ = now + options_.goodbye_patience;
  if (!ended_) send_report(now);
  if (link_ == Link::idle) return end();
  say_goodbye_if_due();
}

void Member::announce_leave() {
  announce_by_ = kNever;
  if (report_.phase != Phase::leaving || leave_announced_) return;
  leave_announced_ = true;
  out_->push_back(member::LeaveAnnounced{});
}

void Member::say_goodbye_if_due() {
  if (link_ != Link::joined || goodbye_by_ == kNever) return;
  if (!ended_ && !leave_told_) return;
  out_->push_back(member::Send{membership::Goodbye{}});
  end();
}

void Member::give_up(Instant now, Error error, bool refused) {
  if (report_.phase == Phase::done && !ended_) return end_alone(now);
  if (going()) {
    // No host will acknowledge our leaving, so we do not wait for it.
    announce_leave();
    if (goodbye_by_ != kNever) return end();
    trouble_ = std::move(error.message);
    if (link_ == Link::joining || link_ == Link::joined) out_->push_back(member::Disconnect{});
    return pause(now);
  }
  if (link_ == Link::joining || link_ == Link::joined) out_->push_back(member::Disconnect{});
  link_ = Link::over;
  out_->push_back(member::GaveUp{std::move(error), refused});
}

void Member::end() {
  const bool connected = link_ != Link::idle && link_ != Link::pausing;
  if (connected) out_->push_back(member::Disconnect{});
  link_ = Link::over;
}

void Member::send_report(Instant now) {
  if (link_ != Link::joined) return;
  ++report_.sequence;
  membership::Report copy = report_;
  if (copy.failure && failure_sent_ == 0) failure_sent_ = copy.sequence;
  if (evidence_arrived_) copy.evidence.reset();
  if (copy.evidence && evidence_sent_ == 0) evidence_sent_ = copy.sequence;
  to_host_clock(copy);
  if (copy.phase == Phase::leaving && leaving_sent_ == 0) leaving_sent_ = copy.sequence;
  if (PLANTED(MembershipBug::lost_resend) && copy.failure && failure_sent_ != copy.sequence) {
    copy.failure.reset();
  }
  beat_at_ = now + heartbeat_;
  sent_.emplace_back(copy.sequence, now);
  if (sent_.size() > kSentKept) sent_.pop_front();
  out_->push_back(member::Send{std::move(copy)});
}

// ---- The host's clock.

// Before the first answer the host's clock is unknown: an error of a year marks such instants.
void Member::to_host_clock(membership::Report& report) const {
  const auto convert = [this](Instant& at, Duration& error) {
    const std::optional<ClockOffset::Reading> there = host_clock_.host_time(at);
    at = there ? there->at : Instant{};
    error += there ? there->error : kUnknownClock;
  };
  if (report.failure) convert(report.failure->at, report.failure->at_error);
  if (report.evidence) convert(report.evidence->since, report.evidence->since_error);
}

// ---- status and lines for people

std::string Member::waiting_text(Instant now) const {
  if (in_round() && !going()) {
    return fmt::format("no sign of the host of the job at {} for {} ({}); waiting up to {}",
                       options_.endpoint, membership::full_seconds(now - heard_at_), trouble_,
                       membership::whole_seconds(silent_at() - heard_at_));
  }
  std::string text =
      fmt::format("waiting for the host of the job at {}: {}", options_.endpoint, trouble_);
  if (going() || give_up_at_ == kNever) return text;
  const Duration left = std::max(Duration::zero(), give_up_at_ - now);
  return text + fmt::format("; gives up in {}", membership::whole_seconds(left));
}

std::string Member::no_host_text() const {
  if (host_is_gone_) {
    return fmt::format("the host of the job at {} has ended ({}), and did not return within {}",
                       options_.endpoint, trouble_, membership::whole_seconds(2 * lease_));
  }
  return fmt::format(
      "no contact with the host of the job at {} for {} ({}): {}; {}", options_.endpoint,
      membership::whole_seconds(reach_timeout()),
      reach_timeout() == options_.join.join_timeout ? "--start-timeout" : "read_timeout", trouble_,
      options_.remedy);
}

std::string Member::phase_text() const {
  switch (report_.phase) {
    case Phase::ready:
      return wait_text_.empty() ? "waiting for the round to form"
                                : "waiting for the round to form: " + wait_text_;
    case Phase::running:
      return fmt::format("in round {} as node {} of {}", report_.epoch, join_.last_rank,
                         join_.last_nodes);
    case Phase::stopping:
      return fmt::format("stopping the workers of round {}", report_.epoch);
    case Phase::testified:
      return fmt::format("the workers of round {} are gone", report_.epoch);
    case Phase::done:
      return fmt::format("done with round {}, waiting for the other nodes", report_.epoch);
    case Phase::leaving:
      break;
  }
  return report_.reaped ? "leaving" : "leaving, stopping the workers";
}

std::string Member::status(Instant now) const {
  if (link_ == Link::idle) return "not begun";
  if (link_ == Link::over) return "over";
  const std::string phase = ended_ ? "the job has ended" : phase_text();
  if (link_ == Link::joined) return phase;
  return phase + "; " + waiting_text(now);
}

}  // namespace muster
