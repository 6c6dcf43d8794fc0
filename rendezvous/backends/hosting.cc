#include "rendezvous/backends/hosting.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"

namespace muster {

void Hosting::step(Instant now, const Event& event, std::vector<Effect>& out) {
  out_ = &out;
  std::visit([&](const auto& e) { on(now, e); }, event);
  if (errand_ == Errand::none && stage_ == Stage::looking) send_look(now);
  if (errand_ == Errand::none && stage_ == Stage::hosting && options_.has_keeper) serve(now);
  out_ = nullptr;
}

Instant Hosting::next_deadline() const {
  if (stage_ != Stage::hosting || errand_ != Errand::none) return kNever;
  return std::min(beat_at_, retry_at_);
}

template <typename One>
void Hosting::send(Errand errand, One effect) {
  if (options_.has_keeper) errand_ = errand;
  out_->push_back(std::move(effect));
}

void Hosting::send_look(Instant now) {
  asked_at_ = now;
  send(Errand::look, hosting::Look{});
}

// ---- The way to a host.

void Hosting::on(Instant, const hosting::Wanted& event) {
  if (stage_ == Stage::retired) return;
  if (stage_ == Stage::hosting) return out_->push_back(hosting::Found{});
  reaped_ = event.reaped;
  tried_again_ = has_waited_ = false;
  why_not_.reset();
  if (options_.has_keeper) return look();
  const bool doubted = std::exchange(endpoint_doubted_, false);
  const bool first_take = options_.may_host.value_or(doubted);
  first_take ? take() : call();
}

void Hosting::on(Instant, const hosting::Dropped&) {
  if (stage_ != Stage::hosting && stage_ != Stage::retired) stage_ = Stage::away;
}

void Hosting::on(Instant now, const hosting::Looked& event) {
  errand_ = Errand::none;
  if (stage_ == Stage::hosting)
    return event.seen ? look_as_host(now, *event.seen) : miss(now, event.seen.error());
  if (event.seen) learn(now, *event.seen);
  if (stage_ != Stage::looking) return;
  event.seen ? consider(now) : not_found(event.seen.error());
}

// Looks again, whatever ended the wait: a change may have come before it.
void Hosting::on(Instant, const hosting::Awaited&) {
  errand_ = Errand::none;
  if (stage_ != Stage::awaiting) return;
  look();
}

void Hosting::learn(Instant now, const Keeper::Seen& seen) {
  const bool has_changed = !seen_ || seen_->version != seen.version;
  looked_at_ = asked_at_;
  if (seen.host) {
    without_since_.reset();
    const bool is_new = has_changed || sign_.beat != seen.host->beat;
    if (is_new) sign_ = {seen.host->beat, now};
  } else if (!without_since_ || (has_changed && !PLANTED(HostingBug::watch_gap))) {
    without_since_ = now;  // A host may have come and gone since the last look.
  }
  seen_ = seen;
}

void Hosting::consider(Instant now) {
  const std::optional<HostRecord>& host = seen_->host;
  if (!host && seen_->job.ending) return job_is_over();
  if (!host) {
    return follow(now,
                  {ExitCode::rendezvous,
                   fmt::format("no host has written its address to {} yet", options_.place)},
                  false);
  }
  const bool is_another = host->instance == replaced_instance_;
  const bool is_ours = host->agent == options_.agent;
  const bool has_doubts = host->instance == mute_instance_ && gone_since();
  if (!is_another && !is_ours && !has_doubts && !host->addresses.empty()) return call();
  called_instance_ = host->instance;
  follow(now,
         {ExitCode::rendezvous, fmt::format("the host {} named in {} does not answer there",
                                            host->host_name, options_.place)},
         false);
}

void Hosting::call() {
  stage_ = Stage::calling;
  const HostRecord host = seen_ && seen_->host ? *seen_->host : HostRecord{};
  called_instance_ = host.instance;
  out_->push_back(hosting::Call{host});
}

void Hosting::on(Instant now, const hosting::Called& event) {
  if (stage_ != Stage::calling) return;
  if (event.how == hosting::Called::How::answered) {
    stage_ = Stage::away;
    return out_->push_back(hosting::Found{});
  }
  const bool refused = event.how == hosting::Called::How::refused;
  if (options_.has_keeper) return follow(now, event.error, refused);
  if (options_.may_host || event.how == hosting::Called::How::no_name || tried_again_)
    return not_found(event.error, refused);
  why_not_ = event.error;
  why_not_refused_ = refused;
  take();
}

void Hosting::on(Instant, const hosting::Doubted& event) {
  endpoint_doubted_ = true;
  (event.is_another ? replaced_instance_ : mute_instance_) = called_instance_;
}

// `refused`: nothing listens at the host's address.
void Hosting::follow(Instant now, Error why_not, bool refused) {
  if (options_.has_keeper && seen_->job.ending && is_member()) return job_is_over();
  if (may_follow(refused)) return take();
  wait_or_give_up(now, std::move(why_not), refused);
}

bool Hosting::is_member() const {
  if (PLANTED(HostingBug::stranger_follows)) return true;
  return seen_->job.has(options_.agent);
}

// Returns when the host's lease was over, as of our last look; nullopt: it was not.
std::optional<Instant> Hosting::gone_since() const {
  if (without_since_) return without_since_;
  if (options_.keeper_ends_leases) return std::nullopt;
  const Duration early = PLANTED(HostingBug::lease_off_by_one) ? options_.beat_every : Duration{};
  const Instant over = sign_.at + options_.lease - early;
  return looked_at_ >= over ? std::optional(over) : std::nullopt;
}

bool Hosting::may_follow(bool refused) const {
  if (!options_.may_host.value_or(true) || !reaped_) return false;
  const std::optional<HostRecord>& host = seen_->host;
  if (host && host->agent == options_.agent) return true;
  if (host && refused && host->machine == options_.machine) return true;
  const std::optional<Instant> gone = gone_since();
  if (seen_->job.epoch == 0 || seen_->job.ending) return gone.has_value();
  if (is_member()) return refused || gone;
  return gone && looked_at_ - *gone >= 2 * options_.lease;
}

void Hosting::wait_or_give_up(Instant now, Error why_not, bool refused) {
  const std::optional<Instant> gone = gone_since();
  Duration patience = options_.patience;
  if (gone && !is_member()) patience = std::min(patience, *gone + 2 * options_.lease - now);
  const bool can_wait = options_.keeper_ends_leases && reaped_ && patience > Duration::zero();
  if (!can_wait || std::exchange(has_waited_, true)) return not_found(std::move(why_not), refused);
  stage_ = Stage::awaiting;
  send(Errand::await, hosting::Await{*seen_, patience});
}

// Answers Wanted: the job is over, and its host is gone.
void Hosting::job_is_over() {
  stage_ = Stage::away;
  out_->push_back(
      hosting::NotFound{{ExitCode::rendezvous, "the job is over"}, false, seen_->job.ending});
}

void Hosting::not_found(Error error, bool refused) {
  stage_ = Stage::away;
  out_->push_back(hosting::NotFound{std::move(error), refused, std::nullopt});
}

void Hosting::take() {
  stage_ = Stage::taking;
  send(Errand::take, hosting::Take{seen_.value_or(Keeper::Seen{})});
}

void Hosting::on(Instant now, const hosting::Taken& event) {
  errand_ = Errand::none;
  if (stage_ == Stage::hosting) {
    take_due_ = event.how == hosting::Taken::How::failed;
    if (take_due_) miss(now, event.error);
    look_due_ = look_due_ || event.how == hosting::Taken::How::lost;
    return;
  }
  // Even if no dial waits for it any more: the keeper names us now.
  if (event.how == hosting::Taken::How::won && stage_ != Stage::retired) return begin_hosting(now);
  if (stage_ != Stage::taking) return;
  if (event.how == hosting::Taken::How::failed) return not_found(event.error);
  if (event.how == hosting::Taken::How::not_ours && why_not_)
    return not_found(*why_not_, why_not_refused_);
  if (!std::exchange(tried_again_, true)) return options_.has_keeper ? look() : call();
  not_found({ExitCode::rendezvous,
             fmt::format("another node is just becoming the host at {}", options_.place)});
}

// ---- As the host.

void Hosting::begin_hosting(Instant now) {
  stage_ = Stage::hosting;
  without_since_.reset();
  job_ = seen_.value_or(Keeper::Seen{}).job;
  wanted_.reset();
  writing_.reset();
  look_due_ = take_due_ = miss_said_ = false;
  retry_at_ = kNever;
  heard_at_ = now;
  beat_at_ = options_.has_keeper ? now + options_.beat_every : kNever;
  // When a member takes over, the host before it is gone.
  auto expected = static_cast<int>(job_.members.size());
  const bool is_member_of_it = job_.has(options_.agent);
  if (is_member_of_it && job_.has(job_.host) && job_.host != options_.agent) --expected;
  // Another job may reuse a file, so only its members go on; etcd keeps records by job id.
  const bool is_its = options_.keeper_ends_leases || is_member_of_it;
  const bool goes_on = job_.epoch > 0 && !job_.ending && is_its;
  out_->push_back(goes_on ? hosting::Host{job_, expected} : hosting::Host{});
}

// Sends the next errand that is due.
void Hosting::serve(Instant now) {
  if (retiring_ && !writing_ && !wanted_) return send(Errand::leave, hosting::Leave{});
  const bool may_retry = retry_at_ == kNever || now >= retry_at_;
  if (may_retry) retry_at_ = kNever;
  if (may_retry && look_due_) return send_look(now);
  if (may_retry && take_due_) return send(Errand::take, hosting::Take{*seen_});
  const bool keeps_us = !look_due_ && !take_due_;
  if (!writing_ && keeps_us) writing_ = std::exchange(wanted_, std::nullopt);
  if (may_retry && writing_ && keeps_us) {
    const bool is_good = writing_->ending && writing_->ending->why == membership::EndWhy::success;
    return send(Errand::write,
                hosting::Write{job_, *writing_, is_good ? options_.success_kept : options_.lease});
  }
  if (now < beat_at_) return;
  beat_at_ = now + options_.beat_every;
  send(Errand::beat, hosting::Beat{});
}

void Hosting::on(Instant now, const hosting::Beaten& event) {
  errand_ = Errand::none;
  if (stage_ != Stage::hosting) return;
  if (!event.beat) return miss(now, event.beat.error());
  hear(now);
  if (*event.beat != Keeper::Beat::kept) look_due_ = true;
}

void Hosting::on(Instant, const hosting::RoundWanted& event) {
  if (stage_ != Stage::hosting || retiring_) return;
  if (!options_.has_keeper) return out_->push_back(hosting::RoundGranted{event.job.epoch});
  wanted_ = event.job;
  wanted_->host = options_.agent;
  if (!miss_said_) return;
  out_->push_back(
      hosting::Say{fmt::format("the next round waits until {} answers again", options_.place)});
}

void Hosting::on(Instant now, const hosting::Written& event) {
  errand_ = Errand::none;
  if (stage_ != Stage::hosting || !writing_) return;
  if (!event.written) return miss(now, event.written.error());
  hear(now);
  if (!*event.written) {
    if (PLANTED(HostingBug::blind_retry)) return step_down();
    look_due_ = true;  // Another host wrote, or an earlier try of ours arrived.
    return;
  }
  grant();
}

// The keeper has now what we were writing.
void Hosting::grant() {
  job_ = *std::exchange(writing_, std::nullopt);
  if (wanted_) return;
  if (!job_.ending) return out_->push_back(hosting::RoundGranted{job_.epoch});
  beat_at_ = kNever;
  out_->push_back(hosting::EndingGranted{});
}

// Checks whether we are still the host, and whether our write has arrived.
void Hosting::look_as_host(Instant now, const Keeper::Seen& seen) {
  hear(now);
  learn(now, seen);
  look_due_ = false;
  if (seen.host && seen.host->agent != options_.agent) return step_down();
  // A failed job's record expires after a lease; no other node removes what is ours.
  const bool is_forgotten = writing_ && writing_->ending && !seen.host && seen.job == JobRecord{};
  if (writing_ && (seen.job == *writing_ || is_forgotten)) {
    grant();
  } else if (seen.job != job_) {
    return step_down();
  }
  take_due_ = !seen.host && !job_.ending;
  if (writing_) retry_at_ = now + options_.retry_every;
}

void Hosting::hear(Instant now) {
  heard_at_ = now;
  retry_at_ = kNever;
  if (std::exchange(miss_said_, false))
    out_->push_back(hosting::Say{fmt::format("{} answers again", options_.place)});
}

void Hosting::miss(Instant now, const Error& error) {
  retry_at_ = now + options_.retry_every;
  if (miss_said_ || now - heard_at_ < options_.lease) return;
  miss_said_ = true;
  out_->push_back(
      hosting::Say{fmt::format("{}; the job goes on as long as its nodes are connected, but no "
                               "new round can form until it answers again",
                               error.message)});
}

void Hosting::step_down() {
  const bool was_leaving = retiring_;
  stage_ = was_leaving ? Stage::retired : Stage::away;
  beat_at_ = retry_at_ = kNever;
  wanted_.reset();
  writing_.reset();
  if (was_leaving) return out_->push_back(hosting::Retire{});
  out_->push_back(hosting::Say{fmt::format(
      "{} names another host: this node is not the host of the job any more", options_.place)});
  out_->push_back(hosting::StepDown{});
}

// Builds on the round that may have been written already.
void Hosting::on(Instant, const hosting::Ended& event) {
  if (stage_ != Stage::hosting || retiring_) return;
  if (!options_.has_keeper) return out_->push_back(hosting::EndingGranted{});
  wanted_ = writing_.value_or(job_);
  wanted_->ending = event.ending;
}

void Hosting::on(Instant, const hosting::Retired&) {
  if (stage_ != Stage::hosting || !options_.has_keeper) {
    stage_ = Stage::retired;
    return out_->push_back(hosting::Retire{});
  }
  retiring_ = true;
  if (wanted_ && !wanted_->ending) wanted_.reset();
}

void Hosting::on(Instant, const hosting::Left&) {
  errand_ = Errand::none;
  stage_ = Stage::retired;
  out_->push_back(hosting::Retire{});
}

void Hosting::on(Instant, const hosting::Tick&) {}

}  // namespace muster
