#include "agent/job/job_recorder.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "agent/report/cause.h"
#include "agent/report/others.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/drive.h"

namespace muster {
namespace {

WallTime wall_now() {
  return std::chrono::system_clock::now();
}

// The kept last lines of a worker stand in for its log files, if it has none.
void take_kept(const WorkerPrinted& printed, WorkerFailure& failure, std::string& dir) {
  if (!printed.kept_out.empty()) failure.stdout_log_path = printed.kept_out;
  if (!printed.kept_err.empty()) failure.stderr_log_path = printed.kept_err;
  const std::string& kept = printed.kept_err.empty() ? printed.kept_out : printed.kept_err;
  const std::filesystem::path worker = std::filesystem::path(kept).parent_path();
  if (!kept.empty()) dir = worker.parent_path().string();
}

// The counter says how many of the job's processes the OOM killer killed, not which ones.
void tell_kills_apart(const std::vector<WorkerEvidence>& workers,
                      std::vector<HostEvidence>& machines) {
  int64_t counted = 0;
  int64_t killed = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].failure.status.killed_by(SIGKILL) || workers[i].signs.by_stop) continue;
    counted = std::max(counted, machines[i].oom_kills);
    killed += machines[i].oom_kills > 0;
  }
  for (HostEvidence& machine : machines)
    machine.more_kills = killed > counted;
}

// True if the worker failed during the stop, but not of its signals; TERM may follow another one.
bool failed_in_stop(const WorkerEvidence& worker) {
  const std::optional<ExitStatus>& status = worker.signs.status;
  return status && !status->success() && !worker.signs.by_stop &&
         worker.signs.at_stop < AtStop::exiting && !explained_by_stop(*status, SIGTERM, false);
}

// When the worker library reported a failure; nullopt: after `stop`, or muster's own doing.
std::optional<Instant> finding_before(const std::optional<FailureRecord>& library, Instant stop) {
  if (!library || library->code == FailureCode::stopped) return std::nullopt;
  const Instant at{std::chrono::nanoseconds(library->time_ns)};
  return at < stop ? std::optional(at) : std::nullopt;
}

AttemptRecord end_by_culprit(const AttemptFailures& failed) {
  const AttemptCulprit culprit = attempt_culprit(failed);
  return {.why_ended = fmt::format("rank {} {}", culprit.rank, culprit.sentence),
          .culprit = culprit};
}

}  // namespace

JobRecorder::JobRecorder(JobReport job, Options options)
    : options_(std::move(options)), report_(std::move(job)) {
  report_.started = wall_now();
}

JobEvent JobRecorder::event(JobEventKind kind) const {
  JobEvent result;
  result.time = wall_now();
  result.kind = kind;
  if (attempt_ >= 0) result.attempt = attempt_;
  return result;
}

void JobRecorder::emit(const JobEvent& event) {
  options_.append_event(event_line(event));
}

void JobRecorder::note(JobEventKind kind, std::string text, std::optional<int> signal,
                       std::optional<double> seconds) {
  JobEvent line = event(kind);
  line.text = std::move(text);
  line.signal = signal;
  line.seconds = seconds;
  emit(line);
}

TorchEventContext JobRecorder::torch_context() const {
  TorchEventContext context;
  context.time = wall_now();
  context.run_id = report_.run_id;
  context.role = report_.role;
  context.hostname = report_.host;
  context.rdzv_backend = options_.rdzv_backend;
  context.entry_point = options_.binary.substr(options_.binary.rfind('/') + 1);
  if (attempt_ >= 0) {
    context.group_rank = round_.node_rank;
    context.group_world_size = round_.nodes;
  }
  context.total_run_time_s = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::steady_clock::now() - job_started_)
                                 .count();
  context.agent_restarts = round_.restarts;
  return context;
}

TorchWorker JobRecorder::torch_worker(int local_rank) const {
  TorchWorker worker;
  worker.local_rank = local_rank;
  worker.global_rank = round_.base_rank + local_rank;
  worker.role_rank = round_.base_role_rank + local_rank;
  worker.role_world_size = round_.role_world_size;
  worker.pid = workers_[static_cast<size_t>(local_rank)].failure.pid;
  return worker;
}

void JobRecorder::torch_line(std::string line) {
  if (options_.torch_events) options_.say_raw(std::move(line));
}

void JobRecorder::job_started(int local_world_size) {
  report_.local_world_size = local_world_size;
  note(JobEventKind::job_started, report_.program);
}

void JobRecorder::round_formed(const RoundView& round) {
  report_.world_size = round.world_size;
  report_.nnodes = round.nodes;
  report_.node_rank = round.node_rank;
}

void JobRecorder::round_ready(int attempt, const RoundView& round, Duration took,
                              const std::vector<WorkerTraces>& traces) {
  if (attempt_ >= 0) close_attempt({});
  attempt_ = attempt;
  round_ = round;
  attempt_started_ = std::chrono::steady_clock::now();
  workers_.clear();
  ends_ = 0;
  stop_.reset();
  report_.left.clear();
  failed_for_hang_.reset();
  findings_.clear();
  noticed_since_.clear();
  given_up_.reset();
  explanation_.reset();
  evidence_ = {report_.host, round.node_rank, {}, {}, {}};
  for (const WorkerTraces& traces_of_one : traces) {
    WorkerFailure& failure = workers_.emplace_back().failure;
    failure.local_rank = static_cast<int>(workers_.size()) - 1;
    failure.rank = round.base_rank + failure.local_rank;
    failure.attempt = attempt;
    failure.host = report_.host;
    failure.role = report_.role;
    failure.device = traces_of_one.device;
    failure.program = report_.program;
    failure.binary = options_.binary;
    failure.stdout_log_path = traces_of_one.out_log;
    failure.stderr_log_path = traces_of_one.err_log;
    failure.error_file_path = traces_of_one.error_file;
  }
  round_formed(round);
  report_.attempts.push_back({attempt, wall_now(), Duration{0}, {}});
  note(JobEventKind::round_ready, fmt::format("{}:{}", round.master_addr, round.master_port));
  const double took_ms = std::chrono::duration<double, std::milli>(took).count();
  torch_line(torch_agent_event(torch_context(), "RENDEZVOUS", took_ms));
  torch_line(torch_agent_event(torch_context(), "ASSIGN_WORKER_RANKS", 0.0));
}

void JobRecorder::worker_started(int local_rank, pid_t pid) {
  worker(local_rank).failure.pid = pid;
  worker(local_rank).started = steady_now();
  JobEvent line = event(JobEventKind::worker_started);
  line.rank = round_.base_rank + local_rank;
  line.local_rank = local_rank;
  line.pid = pid;
  emit(line);
  torch_line(torch_worker_event(torch_context(), torch_worker(local_rank), "START"));
}

void JobRecorder::worker_exited(const WorkerExit& exit, HostEvidence machine) {
  JobEvent line = event(JobEventKind::worker_exited);
  line.rank = round_.base_rank + exit.local_rank;
  line.local_rank = exit.local_rank;
  line.pid = exit.pid;
  line.status = exit.status;
  line.seconds = to_seconds(exit.ran);
  emit(line);
  WorkerRecord& ended = worker(exit.local_rank);
  ended.ended = steady_now();
  ended.order = ends_++;
  WorkerFailure& failure = ended.failure;
  failure.status = exit.status;
  failure.time = wall_now();
  failure.ran = exit.ran;
  failure.max_rss_kib = exit.max_rss_kib;
  failure.cpu_s = exit.cpu_s;
  machine.expired_timer = ended.machine.expired_timer;
  ended.machine = std::move(machine);
}

void JobRecorder::add_evidence(pid_t pid, const GatheredEvidence& gathered) {
  const auto found =
      std::ranges::find(workers_, pid, [](const WorkerRecord& one) { return one.failure.pid; });
  if (found == workers_.end()) return;
  static_cast<GatheredEvidence&>(found->machine) = gathered;
}

void JobRecorder::stop_begins(int signal, Duration grace, const std::vector<AtStop>& seen,
                              Duration earlier, std::vector<std::optional<Departure>> departures) {
  note(JobEventKind::stopping, {}, signal, to_seconds(grace));
  if (stop_) return;
  stop_ = StopMark{steady_now(), signal, false, earlier};
  for (size_t i = 0; i < workers_.size() && i < seen.size(); ++i)
    workers_[i].at_stop = seen[i];
  for (size_t i = 0; i < workers_.size() && i < departures.size(); ++i)
    workers_[i].departure = std::move(departures[i]);
}

void JobRecorder::fails_for_hang() {
  if (!failed_for_hang_) failed_for_hang_ = steady_now();
}

void JobRecorder::kill_sent(std::string whom) {
  note(JobEventKind::killing, std::move(whom));
  if (!stop_) return;
  stop_->killed = true;
  for (WorkerRecord& worker : workers_)
    worker.outlived_grace = worker.outlived_grace || !worker.ended;
}

std::string JobRecorder::grace_is_over(std::vector<LeftRank> left) {
  if (!stop_ || stop_->killed || left.empty()) return {};
  for (LeftRank& rank : left)
    rank.had = steady_now() - stop_->at;
  report_.left = std::move(left);
  const std::string line = left_text(report_.left);
  note(JobEventKind::note, line);
  return line;
}

void JobRecorder::stop_ended() {
  if (!stop_) return;
  const Duration took = steady_now() - stop_->at;
  note(JobEventKind::stopped, {}, {}, to_seconds(took));
}

void JobRecorder::timer_expired(pid_t pid, int local_rank, int signal, const std::string& scope) {
  JobEvent line = event(JobEventKind::timer_expired);
  line.pid = pid;
  if (local_rank >= 0) {
    line.rank = round_.base_rank + local_rank;
    worker(local_rank).machine.expired_timer = scope;
  }
  line.signal = signal;
  line.text = scope;
  emit(line);
}

void JobRecorder::declared_failed(int local_rank, const std::string& why) {
  worker(local_rank).failure.declared = why;
  worker(local_rank).declared = steady_now();
}

void JobRecorder::attempt_drained(const AttemptRemains& remains) {
  const Instant unix_epoch = steady_now() - wall_now().time_since_epoch();
  std::vector<OwnError> errors;
  std::vector<HostEvidence> machines;
  evidence_.workers.clear();
  report_.tails_dir.clear();
  for (size_t i = 0; i < workers_.size(); ++i) {
    WorkerRecord& record = workers_[i];
    if (record.failure.pid == 0) continue;
    if (i < remains.workers.size()) {
      const WorkerRemains& left = remains.workers[i];
      record.printed = left.printed;
      record.failure.stderr_tail = left.printed.err_tail;
      record.failure.stdout_tail = left.printed.out_tail;
      record.failure.error_file_content = left.error_file;
      record.error_file_written = left.error_file_written;
      record.library = left.library;
      take_kept(left.printed, record.failure, report_.tails_dir);
    }
    record.failure.unread = i >= remains.workers.size();
    record.machine.full_log_disk = remains.full_log_disk;
    record.machine.lost_console = record.printed.lost_console;
    Examination examined = examine(record, stop_, unix_epoch);
    examined.signs.told_by_library =
        finding_before(record.library, stop_ ? stop_->at : Instant::max());
    record.failure.stopped_by_muster = examined.signs.by_stop;
    errors.push_back(std::move(examined.error));
    machines.push_back(record.machine);
    evidence_.workers.push_back({std::move(examined.signs), record.failure, {}});
  }
  tell_kills_apart(evidence_.workers, machines);
  for (size_t i = 0; i < machines.size(); ++i) {
    WorkerEvidence& worker = evidence_.workers[i];
    worker.cause = classify(worker.failure, machines[i], errors[i]);
  }
  evidence_.detected = detected();
  JudgedAttempt judged = judge_attempt({evidence_});
  if (judged.culprit) judged_ = std::move(judged);  // Otherwise the last known failure stays.
}

void JobRecorder::store_is_full(const std::string& line) {
  note(JobEventKind::waiting, line);
  evidence_.store_full = line;
}

bool JobRecorder::all_succeeded() const {
  return std::ranges::all_of(workers_, [](const WorkerRecord& worker) {
    return worker.ended && worker.failure.status.success();
  });
}

bool JobRecorder::has_evidence() const {
  if (evidence_.error || !evidence_.detected.empty() || evidence_.store_full) return true;
  return std::ranges::any_of(evidence_.workers, has_something_to_tell, &WorkerEvidence::signs);
}

// Only the first reason counts.
void JobRecorder::close_attempt(const AttemptRecord& end) {
  if (report_.attempts.empty()) return;
  AttemptRecord& attempt = report_.attempts.back();
  if (attempt.lasted == Duration{0})
    attempt.lasted = std::chrono::steady_clock::now() - attempt_started_;
  if (!attempt.why_ended.empty()) return;
  attempt.why_ended = end.why_ended;
  attempt.by_outcome = end.by_outcome;
  attempt.culprit = end.culprit;
}

void JobRecorder::attempt_failed(const WorkerFailure& culprit, const Cause& cause) {
  JobEvent failed = event(JobEventKind::attempt_failed);
  failed.attempt = culprit.attempt;
  failed.rank = culprit.rank;
  failed.local_rank = culprit.local_rank;
  if (culprit.node_rank >= 0 && culprit.node_rank != report_.node_rank) {
    failed.host = culprit.host;
    failed.node_rank = culprit.node_rank;
  }
  failed.text = cause.sentence;
  emit(failed);
}

std::string JobRecorder::restart_line(int restarts_left, Duration delay) {
  if (!judged_.culprit) return {};
  const WorkerFailure& culprit = judged_.the_culprit();
  close_attempt(end_by_culprit(judged_));
  attempt_failed(culprit, judged_.cause);
  note(JobEventKind::restarting, {}, {}, to_seconds(delay));
  return render_restart(culprit, judged_.cause, restarts_left, report_.max_restarts, delay);
}

JobReport JobRecorder::finish(const group::JobOutcome& outcome) {
  report_.end = outcome.end.value_or(JobEnd::round_failed);  // apply_end() may know more.
  report_.ended = wall_now();
  report_.restarts_used = outcome.restarts;
  report_.stop_signal = outcome.signal;
  if (outcome.error) report_.error = *outcome.error;
  if (requested_at_) {
    report_.stop_took = std::chrono::steady_clock::now() - *requested_at_;
  } else if (stop_) {  // Another node was told to end.
    report_.stop_took = steady_now() - stop_->at;
  }
  if (report_.end != JobEnd::success) apply_judged(report_, judged_);
  report_.hang = standing_verdict();
  for (const WorkerRecord& worker : workers_) {
    // Any signal counts: a frozen worker dies of the first one that it had not taken yet.
    const bool was_killed = worker.ended && worker.outlived_grace &&
                            worker.failure.status.kind == ExitStatus::Kind::signaled;
    if (was_killed) report_.killed_ranks.push_back(worker.failure.rank);
  }
  for (const WorkerEvidence& worker : evidence_.workers) {
    if (!failed_in_stop(worker)) continue;
    report_.failed_in_stop.push_back(worker.failure);
    report_.failed_in_stop.back().part = Part::crashed;
    report_.failed_in_stop.back().sentence = worker.cause.sentence;
  }
  if (report_.end == JobEnd::success) {
    close_attempt({.why_ended = "all workers succeeded"});
  } else if (report_.culprit && report_.end == JobEnd::failed) {
    close_attempt(end_by_culprit(report_));
  } else {
    close_attempt({.why_ended = outcome_name(report_.end), .by_outcome = true});
  }
  return report_;
}

void JobRecorder::write_final_events(const JobReport& report, int exit_code) {
  if (report.end == JobEnd::failed && report.culprit)
    attempt_failed(report.the_culprit(), report.cause);
  JobEvent line = event(JobEventKind::job_ended);
  line.text = outcome_name(report.end);
  line.exit_code = exit_code;
  emit(line);
  if (attempt_ < 0) return;
  for (const WorkerRecord& worker : workers_) {
    const int local_rank = worker.failure.local_rank;
    if (worker.failure.pid == 0) continue;
    const char* state = report.end == JobEnd::success ? "SUCCEEDED" : "TERMINATED";
    const WorkerFailure* own = nullptr;
    for (const WorkerFailure& failure : report.failures) {
      const bool is_ours = failure.node_rank < 0 || failure.node_rank == report.node_rank;
      if (report.end != JobEnd::failed || !is_ours || failure.local_rank != local_rank) continue;
      state = "FAILED";
      own = &failure;
    }
    torch_line(torch_worker_event(torch_context(), torch_worker(local_rank), state, own));
  }
  const bool agent_did_its_work = report.end == JobEnd::success || report.end == JobEnd::failed;
  torch_line(torch_agent_event(torch_context(), agent_did_its_work ? "SUCCEEDED" : "FAILED"));
}

}  // namespace muster
