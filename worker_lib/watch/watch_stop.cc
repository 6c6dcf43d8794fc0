#include "worker_lib/watch/watch_stop.h"

#include <csignal>
#include <utility>

#include "worker_lib/quiet_thread.h"

namespace muster::worker {
namespace {

const Failure kTold{ErrorCode::stopped, "the job was told to end (SIGTERM)"};

}  // namespace

WatchStop::WatchStop(Options options, std::unique_ptr<StopSignal> signal)
    : options_(std::move(options)), signal_(std::move(signal)) {}

WatchStop::~WatchStop() {
  if (question_.joinable()) question_.join();
}

void WatchStop::on_death(Instant now) {
  waits_no_more_ = true;
  on_extra(now);
}

void WatchStop::on_expected_death(Instant now, const Failure& why) {
  if (!signal_->came()) return;
  waits_no_more_ = true;
  if (why.code == ErrorCode::peer_failed) {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = why;
  }
  on_extra(now);
}

void WatchStop::on_extra(Instant now) {
  if (said_ || !signal_->came()) return;
  const bool ends_calls = options_.policy == StopPolicy::end_calls;
  if (!std::exchange(came_, true)) {
    options_.tell(news(kTold));
    if (ends_calls) deadline_ = instant_after(now, kPatience);
    if (ends_calls && !waits_no_more_ && options_.ask_cause) ask();
  }
  if (!ends_calls) return;
  std::optional<Failure> cause;
  {
    const std::lock_guard lock(mutex_);
    cause = cause_;
  }
  if (waits_no_more_ || cause || now >= deadline_) say(cause.value_or(kTold));
}

// Fetches the cause on its own thread, which blocks all signals.
void WatchStop::ask() {
  Outcome<std::thread> thread = start_quiet_thread([this] {
    std::optional<Failure> cause = options_.ask_cause();
    if (!cause) return;
    {
      const std::lock_guard lock(mutex_);
      cause_ = std::move(cause);
    }
    options_.wake();
  });
  if (thread) question_ = std::move(*thread);  // Otherwise the cause stays unknown.
}

void WatchStop::say(const Failure& failure) {
  said_ = true;
  deadline_ = kNever;
  // Other ranks first: a listener may end this process at once.
  options_.tell(news(failure));
  options_.publish(news(failure));
}

Watch::News WatchStop::news(const Failure& failure) const {
  return {Watch::News::Kind::stopped, options_.me, {}, failure};
}

}  // namespace muster::worker
