#include "worker_lib/watch/stop_signal.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/event_fd.h"

namespace muster::worker {
namespace {

// Grace after SIGTERM; see StopPolicy::end_calls.
constexpr int kSecondsToLive = 1;

// The handler's state; permanent, since a handler may run while its StopSignal is destroyed.
struct ProcessStop {
  std::atomic<int> event_fd = -1;
  std::atomic<bool> came = false;
  std::atomic<bool> ends = false;
  std::atomic<pid_t> owner = 0;
  std::atomic<bool> is_taken = false;  // A StopSignal is installed.
  timer_t timer{};
  bool has_timer = false;
};

ProcessStop process_stop;

void die_of_sigterm() {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);  // Delivered when the handler returns.
}

// Async-signal-safe throughout (signal-safety(7) names timer_settime).
void on_sigterm(int, siginfo_t* info, void*) {
  ProcessStop& stop = process_stop;
  if (info->si_code == SI_TIMER || getpid() != stop.owner.load()) return die_of_sigterm();
  if (stop.came.exchange(true)) return;
  const int saved_errno = errno;
  raise_event(stop.event_fd);
  if (stop.ends.load()) {
    itimerspec after{};
    after.it_value.tv_sec = kSecondsToLive;
    timer_settime(stop.timer, 0, &after, nullptr);
  }
  errno = saved_errno;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_sigterm;
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

tl::unexpected<Failure> stop_failure(const char* what) {
  return failed(ErrorCode::system,
                fmt::format("cannot {} to be notified of SIGTERM: {}", what, std::strerror(errno)));
}

// Prepares the state once per process, and again in a child of fork(), which has no timers.
Outcome<> prepare_process(StopPolicy policy) {
  ProcessStop& stop = process_stop;
  if (stop.owner.load() != getpid()) {
    stop.event_fd = open_event_fd().release();
    if (stop.event_fd < 0) return stop_failure("make an eventfd");
    stop.came = false;
    stop.has_timer = false;
  }
  if (!stop.has_timer) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGTERM;
    if (timer_create(CLOCK_MONOTONIC, &event, &stop.timer) != 0)
      return stop_failure("make a timer");
    stop.has_timer = true;
  }
  stop.ends = policy == StopPolicy::end_calls;
  stop.owner = getpid();
  return {};
}

}  // namespace

Outcome<std::unique_ptr<StopSignal>> StopSignal::install(StopPolicy policy) {
  struct sigaction now{};
  sigaction(SIGTERM, nullptr, &now);
  const bool wanted = policy != StopPolicy::ignore && (is_default(now) || is_ours(now));
  if (!wanted || process_stop.is_taken.exchange(true)) {
    const int fd = open_event_fd().release();
    if (fd < 0) return stop_failure("make an eventfd");
    return std::unique_ptr<StopSignal>(new StopSignal(fd, false));
  }
  if (Outcome<> prepared = prepare_process(policy); !prepared) {
    process_stop.is_taken = false;
    return tl::unexpected(prepared.error());
  }
  struct sigaction ours{};
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  ours.sa_sigaction = &on_sigterm;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGTERM, &ours, nullptr);
  return std::unique_ptr<StopSignal>(new StopSignal(process_stop.event_fd, true));
}

StopSignal::~StopSignal() {
  if (!installed_) {
    close(event_fd_);
    return;
  }
  struct sigaction now{};
  sigaction(SIGTERM, nullptr, &now);
  const bool is_ending = process_stop.came && process_stop.ends;
  if (is_ours(now) && !is_ending) std::signal(SIGTERM, SIG_DFL);
  if (!process_stop.came) drain_event(event_fd_);
  process_stop.is_taken = false;
}

bool StopSignal::came() const {
  return pretended_.load(std::memory_order_relaxed) ||
         (installed_ && process_stop.came.load(std::memory_order_relaxed));
}

void StopSignal::pretend() {
  pretended_ = true;
  raise_event(event_fd_);
}

}  // namespace muster::worker
