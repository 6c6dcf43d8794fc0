#include "agent/job/time_limit.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kTimeLeftAnswer = std::chrono::seconds(10);
constexpr auto kRequeueAnswer = std::chrono::seconds(30);
constexpr auto kAskAgain = std::chrono::seconds(60);
constexpr auto kAsksBefore = std::chrono::seconds(6);
constexpr int kNoticeSignal = SIGUSR1;

}  // namespace

TimeLimit::TimeLimit(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
                     WorkerProcesses& processes, std::function<void(int)> is_short)
    : job_(job), spec_(spec), is_short_(std::move(is_short)), helper_(io, processes), notice_(io) {}

void TimeLimit::cancel() {
  helper_.cancel();
  notice_.cancel();
}

// `done` gets the line that was printed, or why there is none.
void TimeLimit::ask(const EngineQuestion& question, Duration limit, std::string what,
                    std::function<void(const std::string&)> done) {
  helper_.ask({.arguments = question.arguments,
               .limit = limit,
               .what = std::move(what),
               .late = question.program + " did not answer in time"},
              [done = std::move(done)](const Result<std::string>& answer) {
                done(std::string(trim(answer ? *answer : answer.error().message)));
              });
}

void TimeLimit::watch() {
  if (!spec_.notice_before_s || job_.node_rank() != 0 || std::exchange(is_watched_, true)) return;
  if (!spec_.engine.ends_at) return ask_time_left();
  wait_for_notice(std::chrono::seconds(*spec_.engine.ends_at - std::time(nullptr)), false);
}

void TimeLimit::ask_time_left() {
  if (job_.is_ending() || helper_.is_busy()) return;
  ask(spec_.engine.time_left, kTimeLeftAnswer,
      fmt::format("ask {} for the time that is left", spec_.engine.name),
      [this](const std::string& answer) { on_time_left(answer); });
}

void TimeLimit::on_time_left(const std::string& answer) {
  const EngineSpec& engine = spec_.engine;
  if (answer == "none") {
    return job_.say(
        fmt::format("--notice-before has no effect: job {} has no time limit", engine.job));
  }
  if (const auto left = whole_number<int>(answer))
    return wait_for_notice(std::chrono::seconds(*left), true);
  if (!std::exchange(said_unknown_, true)) {
    job_.say(fmt::format("when {} ends job {} is unknown: {}; asking again every {}", engine.name,
                         engine.job, answer, duration_text(kAskAgain)));
  }
  if (notice_at_) return notice_in_time();
  call_after(notice_, kAskAgain, [this] { ask_time_left(); });
}

// Asks again shortly before it warns, since time limits get changed.
void TimeLimit::wait_for_notice(Duration left, bool is_fresh) {
  if (job_.is_ending()) return;
  const Duration due = left - from_seconds(*spec_.notice_before_s);
  notice_at_ = std::chrono::steady_clock::now() + std::max(Duration{0}, due);
  if (is_fresh && due <= kAsksBefore) return notice_in_time();
  call_after(notice_, std::max(Duration{0}, due - kAsksBefore / 2), [this] { ask_time_left(); });
}

void TimeLimit::notice_in_time() {
  const auto now = std::chrono::steady_clock::now();
  call_after(notice_, std::max(Duration{0}, Duration(*notice_at_ - now)),
             [this] { is_short_(kNoticeSignal); });
}

// Only the engine knows if it pre-empts: the job may end of its signal before this process gets it.
void TimeLimit::requeue(bool in_any_case, std::function<void()> next) {
  const EngineSpec& engine = spec_.engine;
  if (!spec_.requeue_max || job_.node_rank() != 0) return next();
  EngineQuestion question = in_any_case ? engine.requeue : engine.requeue_if_preempted;
  if (engine.starts >= *spec_.requeue_max) {
    question.arguments.push_back(fmt::format("it has been requeued {} (--requeue={})",
                                             counted(engine.starts, "time"), *spec_.requeue_max));
  }
  ask(question, kRequeueAnswer, "requeue the job",
      [this, next = std::move(next)](const std::string& answer) {
        on_requeued(answer);
        next();
      });
}

void TimeLimit::on_requeued(const std::string& answer) {
  const EngineSpec& engine = spec_.engine;
  if (answer.empty()) return;
  if (answer == "done") return job_.say(fmt::format("job {} is requeued", engine.job));
  job_.say(fmt::format("job {} is not requeued: {}; `{}` does it", engine.job, answer,
                       engine.requeue_by_hand));
}

}  // namespace muster
