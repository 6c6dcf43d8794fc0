#include "rendezvous/membership/member.h"

#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using membership::Phase;
using membership::StopWhy;

Member::Member(const Options& options)
    : options_(options), prng_(options.seed), join_(options.join), lease_(options.lease) {
  CHECK(options.lease > Duration::zero());
  CHECK(options.backoff_first > Duration::zero());
  CHECK(options.backoff_cap >= options.backoff_first);
  CHECK(options.first_status > Duration::zero());
  CHECK(options.status_cap >= options.first_status);
  report_.epoch = join_.last_epoch;
}

// Every (link, event) pair about the connection. "-" changes nothing: late or repeated events of a
// connection are ignored.
//
//                    idle      connecting  joining     joined       pausing    over
// Begin              connect   -           -           -            -          -
// ConnectionUp       -         joining     -           -            -          -
// ConnectionFailed   -         pause [1]   pause [1]   pause [1]    -          -
// Welcome            -         -           joined [2]  -            -          -
// Refused            -         -           give up [3] give up [3]  -          -
// Order, Alive       -         -           -           taken in     -          -
// Tick               -         give up     drop,       drop, beat   connect,   -
//                                          give up                  give up
//
// And every (phase, event) pair about the workers.
//
//                    ready       running       stopping       testified  done         leaving
// Order Round        round [4]   -             -              -          -            -
// Order Stop         [5]         stop [6]      -              -          stop [6]     announced
// Order End          goodbye     ended         ended          goodbye    goodbye      ended
// host is silent     -           stop          -              -          end alone    -
// host is another    -           stop          -              -          stop         -
// ReadyForRound      -           ready         ready          ready      ready        reaped
// WorkersDone        -           done [6]      -              -          -            -
// WorkerFailed       send [7]    stopping [7]  send [7]       send [7]   -            send [7]
// EvidenceFound      send [7]    send [7]      send [7]       send [7]   send [7]     send [7]
// Testified          -           -             testified [6]  -          -            -
// Leaving            leaving     leaving       leaving        leaving    leaving      reaped
//
// [1] Running workers are stopped at once if the port refuses us (the host is gone) or if we stood
// still for a lease (we may have been replaced). A fatal failure gives up. [2] The whole state is
// reported at once; a host other than that of our round has ended it. [3] A taken rank is requested
// again for two leases: this node's old process may still count as alive. [4] For an epoch above
// all that we know; else "-". [5] The Order of that round never arrived: it has ended here. [6] For
// our own epoch; else "-". [7] For our own epoch; kept until the next round, since ready may be
// reported before the failure has arrived.
void Member::step(Instant now, const Event& event, std::vector<Effect>& out) {
  if (over()) return;
  out_ = &out;
  std::visit([&](const auto& e) { on(now, e); }, event);
  out_ = nullptr;
}

bool Member::in_round() const {
  return report_.phase == Phase::running || report_.phase == Phase::done;
}

// True while the time-out for reaching a host runs and lines about waiting for it are due.
bool Member::waits_for_host() const {
  return link_ != Link::idle && link_ != Link::joined && link_ != Link::over && !going();
}

Instant Member::next_deadline() const {
  if (over()) return kNever;
  Instant next = std::min(announce_by_, goodbye_by_);
  if (link_ == Link::idle) return next;
  if (link_ == Link::pausing) next = std::min(next, retry_at_);
  if (link_ == Link::joining) next = std::min(next, link_since_ + patience());
  if (link_ == Link::joined) next = std::min({next, beat_at_, heard_at_ + patience()});
  if (link_ != Link::joined && in_round()) next = std::min(next, silent_at());
  if (waits_for_host()) next = std::min({next, give_up_at_, say_at_});
  return next;
}

// ---- The connection.

void Member::on(Instant now, const member::Begin&) {
  if (link_ != Link::idle) return;
  heard_at_ = now;
  lose_contact(now, "not answered yet");
  connect();
}

void Member::connect() {
  link_ = Link::connecting;
  retry_at_ = kNever;
  out_->push_back(member::Connect{join_});
}

Duration Member::reach_timeout() const {
  return options_.reach_timeout > Duration::zero() ? options_.reach_timeout
                                                   : options_.join.join_timeout;
}

// Starts the time-out for reaching a host. After a short-lived connection the earlier one goes on,
// so that a host that welcomes and drops us is neither hammered nor retried forever.
void Member::lose_contact(Instant now, std::string why) {
  const bool held = link_ != Link::joined || now - link_since_ >= options_.stable;
  trouble_ = std::move(why);
  short_lived_ = held ? 0 : short_lived_ + 1;
  backoff_ = backoff_after_loss();
  beat_at_ = kNever;
  if (!held) return;
  host_is_gone_ = false;
  give_up_at_ = now + std::min(reach_timeout(), kNever - now);
  say_wait_ = options_.first_status;
  say_at_ = now + say_wait_;
}

// The first retries are quick: a single early loss may be bad luck, and the host's grace is short.
Duration Member::backoff_after_loss() const {
  Duration backoff = options_.backoff_first;
  for (int i = 1; i < short_lived_ && backoff < options_.backoff_cap; ++i)
    backoff *= 2;
  return std::min(backoff, options_.backoff_cap);
}

// Waits half to one and a half of the back-off, so that ten thousand agents do not return at once.
void Member::pause(Instant now) {
  const auto whole = static_cast<uint64_t>(backoff_.count());
  const Duration jittered{static_cast<int64_t>(whole / 2 + prng_.below(whole + 1))};
  link_ = Link::pausing;
  retry_at_ = now + jittered;
  backoff_ = std::min(2 * backoff_, options_.backoff_cap);
}

void Member::on(Instant now, const member::ConnectionUp& event) {
  if (link_ != Link::connecting) return;
  link_ = Link::joining;
  link_since_ = now;
  join_.dialled = event.dialled;
  join_.advertised = event.advertised;
}

void Member::on(Instant now, const member::ConnectionFailed& event) {
  if (link_ == Link::idle || link_ == Link::pausing) return;
  if (event.fatal) return give_up(now, event.error);
  if (event.over && !going()) return end_late(now, *event.over);
  if (link_ == Link::joined) lose_contact(now, "");
  trouble_ = event.error.message;
  pause(now);
  if (unanswered_since_standstill_ != 0 && report_.phase == Phase::running) {
    return stop_round(
        now, StopWhy::host,
        "this node was frozen for longer than its lease: another node may have taken its place");
  }
  if (!event.refused) return;
  const bool job_ran = join_.last_epoch > 0 || is_spare_;
  if (job_ran && !options_.others_may_host && !host_is_gone_) {
    host_is_gone_ = true;
    give_up_at_ = std::min(give_up_at_, now + 2 * lease_);
  }
  if (report_.phase == Phase::done) return;
  stop_round(now, StopWhy::host,
             fmt::format("the host of the job at {} is gone: {}", options_.endpoint, trouble_));
}

void Member::on(Instant now, const member::Received& event) {
  if (link_ != Link::joining && link_ != Link::joined) return;
  std::visit([&](const auto& message) { hear(now, message); }, event.message);
}

void Member::hear(Instant, const membership::Challenge&) {}  // Handled by the shell.

void Member::hear(Instant now, const membership::Welcome& message) {
  if (link_ != Link::joining) return;
  link_ = Link::joined;
  const bool was_missed = in_round() && now - heard_at_ >= patience();
  heard_at_ = link_since_ = now;
  trouble_.clear();
  if (message.lease > Duration::zero()) lease_ = message.lease;
  heartbeat_ = message.heartbeat > Duration::zero() ? message.heartbeat : lease_ / 3;
  if (message.host_instance != host_instance_) {
    // The new host knows nothing that the previous one was sent.
    host_instance_ = message.host_instance;
    host_clock_.forget();
    report_.order = 0;
    evidence_arrived_ = false;
  }
  if (round_instance_ != host_instance_ && in_round()) {
    stop_round(now, StopWhy::host,
               fmt::format("the host of the job at {} was restarted", options_.endpoint));
  } else {
    if (was_missed) out_->push_back(member::Say{"the host of the job answers again"});
    send_report(now);
  }
  say_goodbye_if_due();
}

void Member::hear(Instant now, const membership::Refused& message) {
  if (message.kind == membership::RefusalKind::rank_taken && !going()) {
    return refused_rank(now, message.text);
  }
  give_up(now, {ExitCode::rendezvous, message.text}, true);
}

// Retries for two leases: the host may count this node's old process as alive until its lease is
// over. We ask often enough to be heard before that, so that the host does not count too few nodes.
void Member::refused_rank(Instant now, const std::string& text) {
  if (!rank_refused_at_) rank_refused_at_ = now;
  if (now - *rank_refused_at_ >= 2 * lease_)
    return give_up(now, {ExitCode::rendezvous, text}, true);
  out_->push_back(member::Disconnect{});
  if (link_ == Link::joined) lose_contact(now, "");
  trouble_ = text;
  pause(now);
  retry_at_ = std::min(retry_at_, now + lease_ / 6);
  stop_round(now, StopWhy::host, text);
}

void Member::hear(Instant now, const membership::Alive& message) {
  if (link_ != Link::joined) return;
  heard_at_ = now;
  if (message.answers > unanswered_since_standstill_) unanswered_since_standstill_ = 0;
  if (const auto sent =
          std::ranges::find(sent_, message.answers, &std::pair<uint64_t, Instant>::first);
      sent != sent_.end())
    host_clock_.exchange(sent->second, message.clock, now);
  if (evidence_sent_ != 0 && message.report >= evidence_sent_) evidence_arrived_ = true;
  if (leaving_sent_ != 0 && message.report >= leaving_sent_) {
    leave_told_ = true;
    announce_leave();
    say_goodbye_if_due();
  }
}

// ---- Time.

void Member::on(Instant now, const member::Tick&) {
  if (now < next_deadline()) return;
  forgive_jump(now);
  tick_patience(now);
  if (!over()) tick_link(now);
}

// Restarts the waits if this process stood still: what the host sent meanwhile is still unread.
void Member::forgive_jump(Instant now) {
  if (now - next_deadline() <= options_.jump) return;
  if (now - heard_at_ > lease_) unanswered_since_standstill_ = report_.sequence;
  heard_at_ = now;
  if (link_ == Link::joining) link_since_ = now;
  if (give_up_at_ != kNever) give_up_at_ = std::max(give_up_at_, now + lease_);
}

void Member::tick_patience(Instant now) {
  if (now >= announce_by_) announce_leave();
  if (now >= goodbye_by_) end();
}

void Member::tick_link(Instant now) {
  if (link_ == Link::joined && now >= heard_at_ + patience()) {
    out_->push_back(member::Disconnect{});
    lose_contact(now, fmt::format("no sign of life for {}", membership::whole_seconds(patience())));
    if (in_round() && now < silent_at()) say_at_ = now;
    pause(now);
  }
  // Planted: the round ends with the connection.
  if (PLANTED(MembershipBug::no_patience) && link_ == Link::pausing &&
      now - heard_at_ >= patience())
    stop_round(now, StopWhy::host, "the connection is dialled anew");
  if (link_ != Link::joined && in_round() && now >= silent_at()) {
    if (report_.phase == Phase::done) return end_alone(now);
    stop_round(now, StopWhy::host,
               fmt::format("the host of the job at {} has been silent for {}: {}",
                           options_.endpoint, membership::whole_seconds(lease_), trouble_));
  }
  if (link_ == Link::joining && now >= link_since_ + patience()) {
    out_->push_back(member::Disconnect{});
    trouble_ = fmt::format("connected, but the host sent no welcome for {}",
                           membership::whole_seconds(patience()));
    pause(now);
  }
  if (link_ == Link::joined && now >= beat_at_) send_report(now);
  if (waits_for_host() && now >= give_up_at_) {
    return give_up(now, {ExitCode::rendezvous, no_host_text()});
  }
  if (waits_for_host() && now >= say_at_) say_waiting(now);
  if (link_ == Link::pausing && now >= retry_at_) connect();
}

void Member::say_waiting(Instant now) {
  out_->push_back(member::Say{waiting_text(now)});
  say_wait_ = std::min(2 * say_wait_, options_.status_cap);
  say_at_ = now + say_wait_;
}

}  // namespace muster
