// Performs the effects of the WorkerGroup machine, and ends the job.
#include <algorithm>
#include <climits>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/job/agent_loop.h"
#include "agent/report/error_file.h"
#include "agent/report/failure_wire.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/quiet_thread.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// A ready pipe takes so much without blocking (pipe(7), PIPE_BUF); one that is not ready is left
// alone.
void write_what_fits(std::string_view text) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  while (!text.empty() && poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0) {
    const ssize_t n = write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// For what cannot go through the output thread, because that thread is what the launcher waits for.
// On a thread of its own: the console may be a file on the disk that hangs.
void say_past_the_output(const std::string& text) {
  try {
    quiet_thread([text] { write_what_fits(text); }).detach();
  } catch (const std::system_error&) {
  }
}

RenderOptions terminal_options() {
  RenderOptions options;
  winsize size{};
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.width = size.ws_col;
  const char* const term = getenv("TERM");
  const char* const no_color = getenv("NO_COLOR");  // no-color.org: set and not empty
  options.colour = terminal && (no_color == nullptr || *no_color == '\0') &&
                   (term == nullptr || std::string_view(term) != "dumb");
  const time_t now = time(nullptr);
  tm local{};
  localtime_r(&now, &local);
  options.utc_offset = std::chrono::seconds(local.tm_gmtoff);
  return options;
}

}  // namespace

void AgentLoop::perform(const group::Effect& effect) {
  std::visit([this](const auto& one) { on(one); }, effect);
}

// Starts one worker per turn of the loop: signals and exits are seen between two of 200 starts.
void AgentLoop::on(const group::Spawn& effect) {
  spawn_pending_ = true;
  boost::asio::post(io_, [this, effect] { spawn_worker(effect.attempt, effect.local_rank); });
}

void AgentLoop::on(const group::WorkerFailed& effect) {
  failed_ = effect;
  const group::FirstFailure& first = effect.first;
  if (!first.why.empty()) record_.declared_failed(first.local_rank, first.why);
  report_failure(first.local_rank, first.status ? std::max(1, first.status->code()) : 1,
                 first.status ? describe(*first.status) : first.why, first.is_final);
}

// Record the stop before its first signal: what the workers do after it may be its effect.
void AgentLoop::on(const group::Stop& effect) {
  begin_stop(effect.signal);
  processes_.stop(effect.signal);
}

void AgentLoop::on(const group::StopRest&) {
  processes_.stop_rest();
}

void AgentLoop::on(const group::Kill&) {
  own_ranks_.end_look();
  begin_stop(SIGKILL);
  std::string whom;
  for (const ProcessEntry& process : processes_.descendants()) {
    if (!is_over(process))
      whom += fmt::format("{}{} ({})", whom.empty() ? "" : ", ", process.pid, process.name);
  }
  // A user who wants it to end now does not want to read this.
  const std::string left =
      end_.is_killed() ? std::string() : record_.grace_is_over(own_ranks_.left_ranks());
  if (!left.empty()) say(left);
  record_.kill_sent(whom);
  processes_.kill();
}

void AgentLoop::begin_stop(int signal) {
  if (std::exchange(stop_began_, true)) return;
  hang_part_.stop();
  output_->read_to_the_end();
  output_->mark_stop();
  record_.stop_begins(
      signal, grace(), processes_.look(),
      engine_.workers_are_told() ? Duration(EngineSignals::kElsewhere) : Duration{0});
}

Duration AgentLoop::grace() const {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(spec_.shutdown_timeout_s));
}

void AgentLoop::on(const group::ReportStopping& effect) {
  std::vector<int> ranks;
  for (int local_rank : effect.live)
    ranks.push_back(round_.base_rank + local_rank);
  const std::string who = ranks.empty() ? "processes that the ranks started" : ranks_text(ranks);
  const bool asked = effect.reason == group::StopReason::requested;
  if (effect.killing) {
    if (effect.left > Duration{0} && !processes_.kill_is_refused()) {
      say(fmt::format("{} got SIGKILL; giving up in {} if still alive", who,
                      duration_text(effect.left)));
    }
    return;
  }
  own_ranks_.look_before_kill(effect, grace());
  if (effect.left >= grace()) {
    // The first line of the countdown. After a failure it is omitted: only a slow stop is reported.
    if (!asked || (engine_.is_told() && another_says_it())) return;
    say(fmt::format("{}: stopping {}; SIGKILL in {} (repeat to kill now)",
                    signal_name(effect.signal), who, duration_text(effect.left)));
  } else {
    say(fmt::format("waiting for {} to end after {}; SIGKILL in {}", who,
                    signal_name(effect.signal), duration_text(effect.left)));
  }
}

void AgentLoop::on(const group::WatchLeftovers&) {
  processes_.watch_empty();
}

void AgentLoop::on(const group::ReportLeftovers& effect) {
  std::string names;
  const std::vector<ProcessEntry> left = processes_.descendants();
  constexpr size_t kNamesMax = 8;
  for (size_t i = 0; i < std::min(left.size(), kNamesMax); ++i) {
    names += fmt::format("{}{} ({})", i == 0 ? "" : ", ", left[i].pid, left[i].name);
  }
  if (left.size() > kNamesMax) names += fmt::format(", and {} more", left.size() - kNamesMax);
  say(
      fmt::format("all ranks have succeeded, but left processes running: {}; waiting up to {}, "
                  "then stopping them",
                  names, duration_text(effect.left)));
  record_.note(JobEventKind::leftovers, names);
}

void AgentLoop::on(const group::SuspendWorkers&) {
  hang_part_.suspended();
  processes_.suspend();
}

void AgentLoop::on(const group::ResumeWorkers&) {
  record_.note(JobEventKind::resumed);
  processes_.resume();
  hang_part_.resumed();
}

void AgentLoop::on(const group::ForwardSignal& effect) {
  processes_.forward(effect.signal);
}

void AgentLoop::on(const group::BackOff& effect) {
  drain_.when_done([this, delay = effect.delay] { say_restart(delay); });
}

void AgentLoop::on(const group::Note& effect) {
  record_.note(JobEventKind::note, effect.text);
}

// Printed once the attempt's output is complete, so that the line follows the output it is about.
void AgentLoop::say_restart(Duration delay) {
  if (!failed_) return;
  const int left = std::exchange(failed_, std::nullopt)->restarts_left;
  const std::string line = record_.restart_line(left, delay);
  if (!line.empty()) say(line);
}

void AgentLoop::on(const group::Finish& effect) {
  drain_.begin();  // Processes that survived KILL still hold streams: take what those hold now.
  end_drive_.post(Ending::WorkersOver{});
  // Posted, not called from inside the machine's step: end() posts no event to the machine, but the
  // loop's state is simpler this way.
  boost::asio::post(io_, [this, outcome = effect.outcome] {
    drain_.begin();
    drain_.when_done([this, outcome] { end(outcome); });
  });
}

void AgentLoop::fail_early(const Error& error) {
  group::JobOutcome outcome;
  outcome.end = JobEnd::round_failed;
  outcome.error = error;
  end(outcome);
}

void AgentLoop::end(const group::JobOutcome& outcome) {
  if (ending_) return;
  ending_ = true;
  driver_.cancel();
  bundles_.close();
  own_ranks_.cancel();
  engine_.cancel();
  time_limit_.cancel();
  pause_.cancel();
  torch_timers_.cancel();
  last_words_limit_.cancel();
  control_part_.close();
  if (coordinated_) report_evidence(job_round_.epoch);
  if (std::shared_ptr<hang::Trace> trace = hang_part_.take_trace()) output_->perform([trace] {});
  JobReport report = record_.finish(outcome);
  if (job_end_) apply_end(report, *job_end_);
  if (report.end == JobEnd::unkillable) {
    for (const ProcessEntry& process : processes_.descendants()) {
      if (is_over(process)) continue;
      report.stuck.push_back(stuck_process(process));
      report.stuck.back().foreign_user = foreign_user_of(process.pid);
    }
  }
  exit_code_ = exit_code_of(report, spec_.exit_code);
  succeeded_ = report.end == JobEnd::success;
  ended_well_ = succeeded_ || (report.end == JobEnd::stopped && report.killed_ranks.empty());
  record_.write_final_events(report, exit_code_);
  output_->write_file("result.json", result_json(report, spec_.exit_code));
  const bool said = another_says_the_end(report);
  last_screen_ = said ? std::string() : render_end(report, terminal_options());
  if (!last_screen_.empty()) output_->say(last_screen_);
  output_->perform([this] { boost::asio::post(io_, [this] { last_screen_.clear(); }); });

  if (const std::string path = lookup(env::kErrorFile);
      !path.empty() && report.end != JobEnd::success) {
    std::optional<std::string> content;
    if (report.culprit) content = launcher_error_file(report.the_culprit());
    if (report.end == JobEnd::stopped) {
      const Error stopped{ExitCode::success, "stopped by " + signal_name(report.stop_signal)};
      content = launcher_error_file(stopped, report.ended);
    }
    if (!report.error.message.empty()) content = launcher_error_file(report.error, report.ended);
    if (content) output_->write_file(path, *content);
  }
  // All requests before this one have been performed then; finish() may wait for a console.
  output_->remove_temporary(succeeded_);
  output_->perform(
      [this] { boost::asio::post(io_, [this] { end_drive_.post(Ending::FilesWritten{}); }); });
  end_drive_.post(Ending::Ended{.waits_for_teller = said && exit_code_ != 0});
  say_goodbye();
}

// The job's host stays as long as other nodes need it.
void AgentLoop::say_goodbye() {
  const auto requeue = [this] {
    time_limit_.requeue({engine_.is_warned(), engine_.is_told(), ended_well_, succeeded_},
                        [this] { end_drive_.post(Ending::Parted{}); });
  };
  if (!rendezvous_) return requeue();
  if (leaving_signal_) rendezvous_->leaving(*leaving_signal_, true);
  rendezvous_->close(requeue);
}

void AgentLoop::perform(const Ending::Effect& effect) {
  if (std::holds_alternative<Ending::CutDrain>(effect)) return drain_.finish({});
  if (const auto* const notice = std::get_if<Ending::Say>(&effect))
    return say_past_the_output(notice_text(notice->what));
  if (std::holds_alternative<Ending::FinishOutput>(effect)) {
    return output_->finish(
        [this] { boost::asio::post(io_, [this] { end_drive_.post(Ending::OutputFinished{}); }); });
  }
  // The front may be suspending itself at this very moment; nothing else would wake it up.
  if (getppid() == context_.front) kill(context_.front, SIGCONT);
  abandoned_ = std::get<Ending::Leave>(effect).abandons_output;
  if (abandoned_ && output_) output_->abandon();
  io_.stop();
}

std::string AgentLoop::notice_text(Ending::Notice what) const {
  const std::string& disk = folders_.run_dir.empty() ? temp_dir_ : folders_.run_dir;
  switch (what) {
    case Ending::Notice::disk_is_silent:
      return fmt::format(
          "muster: the job has ended, but the disk of {} does not answer; leaving without its last "
          "files in {}\n",
          disk, duration_text(Ending::kFilesPatience));
    case Ending::Notice::files_are_lost:
      return last_screen_ +
             fmt::format(
                 "muster: the disk of {} does not answer: what was still to be written there is "
                 "lost\n",
                 disk);
    case Ending::Notice::output_is_unread:
      return "muster: the job has ended; waiting for its last output to be read; Ctrl-C stops "
             "waiting\n";
    case Ending::Notice::files_are_missing:
      return "muster: the job has ended; its last files are not written yet; a second signal "
             "leaves "
             "without them\n";
  }
  CHECK(false);
}

}  // namespace muster
