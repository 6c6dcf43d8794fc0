// What the engine tells this job: by signals, which the workers may have had already, and by the
// time that it leaves it.
#include <chrono>
#include <csignal>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "agent/job/agent_loop.h"
#include "agent/letter.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

constexpr auto kSlurmAnswers = std::chrono::seconds(10);
constexpr auto kAskAgain = std::chrono::seconds(60);
constexpr auto kAsksBefore = std::chrono::seconds(6);
constexpr int kNoticeSignal = SIGUSR1;

// What a hidden command printed (launch_spec.h), or why it printed nothing.
std::string slurm_line(const Result<std::string>& answer) {
  return std::string(trim(answer ? *answer : answer.error().message));
}

}  // namespace

// ---- signals

bool AgentLoop::is_of_engine(Sender sender) const {
  return sender == Sender::engine && spec_.engine.signals_all;
}

// -1: unknown, before the nodes have met.
int AgentLoop::own_node_rank() const {
  if (job_round_.epoch > 0) return job_round_.node_rank;
  return spec_.rendezvous.node_rank.value_or(coordinated_ ? -1 : 0);
}

void AgentLoop::listen_to_witness() {
  if (witness_.fd() < 0) {
    witness_fd_.release();
    return;
  }
  if (!witness_fd_.is_open()) {
    processes_.add_helper(witness_.pid());
    witness_fd_.assign(witness_.fd());
  }
  witness_fd_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](boost::system::error_code error) {
                           if (error) return;
                           while (const auto seen = witness_.next()) {
                             witnessed_[seen->signal] = seen->when;
                             engine_drive_.post(EngineSignals::WitnessGot{seen->signal});
                           }
                           listen_to_witness();
                         });
}

// It may not have run since, nor this process, where others wait for the CPUs.
bool AgentLoop::witness_has(int signal) {
  const auto now = std::chrono::steady_clock::now();
  const std::string status = read_process_file(witness_.pid(), "status", kStatusBytesMax);
  if (has_signal(signal_mask(status, "\nShdPnd:"), signal)) witnessed_[signal] = now;
  while (const auto seen = witness_.next())
    witnessed_[seen->signal] = seen->when;
  const auto got = witnessed_.find(signal);
  return got != witnessed_.end() && now - got->second <= EngineSignals::kElsewhere;
}

void AgentLoop::on_own_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  const Sender sender = sender_of(info);
  if (is_of_engine(sender)) return;  // The front and the witness get it as well.
  if (signal == SIGTERM || signal == SIGINT || signal == SIGQUIT) on_stop_signal(signal, sender);
}

void AgentLoop::on_stop_signal(int signal, Sender sender) {
  output_->read_to_the_end();
  if (is_of_engine(sender) && ending_) return;  // It kills later, and muster is on its way.
  if (!drive_ || ending_) {
    told_by_engine_ = told_by_engine_ || is_of_engine(sender);
    return request_stop(signal);
  }
  Duration patience{0};
  // A process that dies of the signal may get it twice.
  if (is_of_engine(sender) || (sender != Sender::kernel && processes_.may_handle(signal)))
    patience = sender == Sender::process ? EngineSignals::kNextCall : EngineSignals::kNextDoor;
  engine_drive_.post(EngineSignals::FrontGot{signal, true, patience});
}

void AgentLoop::on_engine(const EngineSignals::Effect& effect) {
  if (const auto* const warning = std::get_if<EngineSignals::Warn>(&effect)) {
    on_warned(*warning);
  } else if (const auto* const stop = std::get_if<EngineSignals::Stop>(&effect)) {
    are_told_ = stop->told || witness_has(stop->signal);
    told_by_engine_ = are_told_ && spec_.engine.signals_all;
    if (are_told_) processes_.have_signal(witnessed_[stop->signal]);
    request_stop(stop->signal);
  } else if (const auto* const tell = std::get_if<EngineSignals::Tell>(&effect)) {
    const std::string content{static_cast<char>(tell->signal), tell->by_engine ? '\1' : '\0'};
    send(tell->node, letter_of(Letter::warning, content));
  }
}

void AgentLoop::on_warned(const EngineSignals::Warn& warning) {
  is_warned_ = true;
  rings_.warn();
  if (ending_) return;
  if (own_node_rank() == 0) {
    say(fmt::format("the job's end is near: all workers {} {}, and should_stop() is true",
                    warning.told ? "had" : "get", signal_name(warning.signal)));
  }
  if (!warning.told && drive_) drive_->post(group::Forward{warning.signal});
}

void AgentLoop::on_warning_letter(int from, std::string_view content) {
  if (content.size() != 2 || from == job_round_.node_rank) return;
  const int signal = content[0];
  if (signal != SIGUSR1 && signal != SIGUSR2) return;
  is_warned_ = true;
  engine_drive_.post(EngineSignals::Heard{signal, content[1] != 0});
}

// Another node leaves because of a signal that every process there got. It may be on its way to the
// workers here as well, and they are to get it once.
void AgentLoop::stop_after_engine(int attempt) {
  const auto patience =
      spec_.engine.signals_all ? EngineSignals::kElsewhere : EngineSignals::kNextDoor;
  call_after(held_stop_, patience, [this, attempt] {
    if (!group_->finished()) drive_->post(group::Regroup{attempt});
  });
}

// ---- the time that is left

// By one node: a Slurm of a thousand nodes is not to be asked by all of them.
void AgentLoop::watch_time_limit() {
  if (!spec_.notice_before_s || job_round_.node_rank != 0 || watches_time_) return;
  watches_time_ = true;
  if (!spec_.engine.ends_at) return ask_time_left();
  wait_for_notice(std::chrono::seconds(*spec_.engine.ends_at - std::time(nullptr)), false);
}

void AgentLoop::ask_time_left() {
  if (ending_ || slurm_.is_busy()) return;
  slurm_.ask({.arguments = {kSlurmTimeLeftFlag, spec_.engine.job},
              .limit = kSlurmAnswers,
              .what = "ask Slurm for the time that is left",
              .late = "squeue did not answer in time"},
             [this](const Result<std::string>& answer) { on_time_left(answer); });
}

void AgentLoop::on_time_left(const Result<std::string>& answer) {
  const std::string line = slurm_line(answer);
  if (line == "none") {
    return say(
        fmt::format("--notice-before has no effect: job {} has no time limit", spec_.engine.job));
  }
  if (const auto left = whole_number<int>(line))
    return wait_for_notice(std::chrono::seconds(*left), true);
  if (!std::exchange(said_no_time_, true)) {
    say(fmt::format("when Slurm ends job {} is unknown: {}; asking again every {}",
                    spec_.engine.job, line, duration_text(kAskAgain)));
  }
  if (notice_at_) return warn_in_time();
  call_after(notice_, kAskAgain, [this] { ask_time_left(); });
}

// Asks again shortly before it warns, since limits are moved.
void AgentLoop::wait_for_notice(Duration left, bool is_fresh) {
  if (ending_) return;
  const Duration due = left - std::chrono::duration_cast<Duration>(
                                  std::chrono::duration<double>(*spec_.notice_before_s));
  notice_at_ = std::chrono::steady_clock::now() + std::max(Duration{0}, due);
  if (is_fresh && due <= kAsksBefore) return warn_in_time();
  call_after(notice_, std::max(Duration{0}, due - kAsksBefore / 2), [this] { ask_time_left(); });
}

void AgentLoop::warn_in_time() {
  const auto now = std::chrono::steady_clock::now();
  call_after(notice_, std::max(Duration{0}, Duration(*notice_at_ - now)),
             [this] { engine_drive_.post(EngineSignals::TimeIsShort{kNoticeSignal}); });
}

// The job starts anew where this one saved its state. Last of all: Slurm ends the job at once.
void AgentLoop::requeue(std::function<void()> next) {
  const bool is_told = is_warned_ || told_by_engine_;
  if (!is_told || !spec_.requeue_max || own_node_rank() != 0 || !ended_well_) return next();
  if (spec_.engine.starts >= *spec_.requeue_max) {
    say(fmt::format("job {} is not requeued: it has been {} (--requeue={})", spec_.engine.job,
                    counted(spec_.engine.starts, "time"), *spec_.requeue_max));
    return next();
  }
  std::vector<std::string> arguments{kSlurmRequeueFlag, spec_.engine.job};
  // A job that was told to end may be one that its user cancelled.
  if (!is_warned_ || !succeeded_) arguments.emplace_back(kIfPreempted);
  slurm_.ask({.arguments = std::move(arguments),
              .limit = kSlurmAnswers,
              .what = "requeue the job",
              .late = "scontrol did not answer in time"},
             [this, next = std::move(next)](const Result<std::string>& answer) {
               on_requeued(answer);
               next();
             });
}

void AgentLoop::on_requeued(const Result<std::string>& answer) {
  const std::string line = slurm_line(answer);
  if (line.empty()) return;
  if (line == "done") return say(fmt::format("job {} is requeued", spec_.engine.job));
  say(fmt::format("job {0} is not requeued: {1}; `scontrol requeue {0}` does it", spec_.engine.job,
                  line));
}

}  // namespace muster
