#include "agent/job_record.h"

#include <algorithm>
#include <csignal>
#include <set>

#include <fmt/format.h>

#include "agent/report/cause.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"

namespace muster {
namespace {

WallTime wall_now() {
  return std::chrono::system_clock::now();
}

JobEnd job_end(group::Outcome::Kind kind) {
  switch (kind) {
    case group::Outcome::Kind::success:
      return JobEnd::success;
    case group::Outcome::Kind::failed:
      return JobEnd::failed;
    case group::Outcome::Kind::stopped:
      return JobEnd::stopped;
    case group::Outcome::Kind::spawn_failed:
      return JobEnd::spawn_failed;
    case group::Outcome::Kind::round_failed:
      return JobEnd::round_failed;
    case group::Outcome::Kind::unkillable:
      return JobEnd::unkillable;
    case group::Outcome::Kind::ended:
      return JobEnd::round_failed;  // Unless the one who ended it says more: job_ended.
  }
  return JobEnd::failed;
}

}  // namespace

JobRecord::JobRecord(Options options) : options_(std::move(options)) {
  report_.run_id = options_.run_id;
  report_.program = options_.program;
  report_.host = options_.host;
  report_.role = options_.role;
  report_.max_restarts = options_.max_restarts;
  report_.started = wall_now();
}

JobEvent JobRecord::event(JobEventKind kind) const {
  JobEvent result;
  result.time = wall_now();
  result.kind = kind;
  if (attempt_ >= 0) result.attempt = attempt_;
  return result;
}

void JobRecord::emit(const JobEvent& event) {
  options_.append_event(event_line(event));
}

void JobRecord::note(JobEventKind kind, std::string text, std::optional<int> signal,
                     std::optional<double> seconds) {
  JobEvent line = event(kind);
  line.text = std::move(text);
  line.signal = signal;
  line.seconds = seconds;
  emit(line);
}

TorchEventContext JobRecord::torch_context() const {
  TorchEventContext context;
  context.time = wall_now();
  context.run_id = options_.run_id;
  context.role = options_.role;
  context.hostname = options_.host;
  context.rdzv_backend = options_.rdzv_backend;
  context.entry_point = options_.binary.substr(options_.binary.rfind('/') + 1);
  if (attempt_ >= 0) {
    context.group_rank = round_.group_rank;
    context.group_world_size = round_.group_world_size;
  }
  context.total_run_time_s = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::steady_clock::now() - job_started_)
                                 .count();
  context.agent_restarts = round_.restart_count;
  return context;
}

TorchWorker JobRecord::torch_worker(int local_rank) const {
  TorchWorker worker;
  worker.local_rank = local_rank;
  worker.global_rank = round_.base_rank + local_rank;
  worker.role_rank = round_.base_role_rank + local_rank;
  worker.role_world_size = round_.role_world_size;
  worker.pid = started_[static_cast<size_t>(local_rank)].pid;
  return worker;
}

void JobRecord::torch_line(std::string line) {
  if (options_.torch_events) options_.say_raw(std::move(line));
}

void JobRecord::job_started(int local_world_size) {
  report_.local_world_size = local_world_size;
  note(JobEventKind::job_started, options_.program);
}

void JobRecord::round_ready(int attempt, const RoundView& round, Duration took,
                            std::vector<WorkerTraces> traces) {
  if (attempt_ >= 0) close_attempt({});
  attempt_ = attempt;
  round_ = round;
  attempt_started_ = std::chrono::steady_clock::now();
  traces_ = std::move(traces);
  started_.assign(traces_.size(), {});
  ended_.clear();
  declared_.clear();
  report_.world_size = round.world_size;
  report_.nnodes = round.group_world_size;
  report_.node_rank = round.group_rank;
  report_.attempts.push_back({attempt, wall_now(), Duration{0}, {}});
  note(JobEventKind::round_ready, fmt::format("{}:{}", round.master_addr, round.master_port));
  const double took_ms = std::chrono::duration<double, std::milli>(took).count();
  torch_line(torch_agent_event(torch_context(), "RENDEZVOUS", took_ms));
  torch_line(torch_agent_event(torch_context(), "ASSIGN_WORKER_RANKS", 0.0));
}

void JobRecord::worker_started(int local_rank, pid_t pid) {
  started_[static_cast<size_t>(local_rank)].pid = pid;
  JobEvent line = event(JobEventKind::worker_started);
  line.rank = round_.base_rank + local_rank;
  line.local_rank = local_rank;
  line.pid = pid;
  emit(line);
  torch_line(torch_worker_event(torch_context(), torch_worker(local_rank), "START"));
}

void JobRecord::worker_exited(const WorkerExit& exit, HostEvidence evidence) {
  const auto index = static_cast<size_t>(exit.local_rank);
  started_[index].exited = true;
  JobEvent line = event(JobEventKind::worker_exited);
  line.rank = round_.base_rank + exit.local_rank;
  line.local_rank = exit.local_rank;
  line.pid = exit.pid;
  line.status = exit.status;
  line.seconds = std::chrono::duration<double>(exit.ran).count();
  emit(line);
  // A worker that we declared failed stays the culprit even if it ends well after all.
  if (exit.status.success() && !declared_.contains(exit.local_rank)) return;

  Ended ended;
  WorkerFailure& failure = ended.failure;
  failure.rank = round_.base_rank + exit.local_rank;
  failure.local_rank = exit.local_rank;
  failure.pid = exit.pid;
  failure.attempt = attempt_;
  failure.host = options_.host;
  failure.role = options_.role;
  failure.device = traces_[index].device;
  failure.program = options_.program;
  failure.binary = options_.binary;
  failure.status = exit.status;
  failure.time = wall_now();
  failure.ran = exit.ran;
  failure.max_rss_kib = exit.max_rss_kib;
  failure.cpu_s = exit.cpu_s;
  failure.stdout_log_path = traces_[index].out_log;
  failure.stderr_log_path = traces_[index].err_log;
  failure.error_file_path = traces_[index].error_file;
  ended.evidence = std::move(evidence);
  const auto timer = expired_timers_.find(exit.pid);
  if (timer != expired_timers_.end()) ended.evidence.expired_timer = timer->second;
  ended_.push_back(std::move(ended));
}

void JobRecord::add_evidence(pid_t pid, const HostEvidence& evidence) {
  for (Ended& ended : ended_) {
    if (ended.failure.pid != pid) continue;
    HostEvidence merged = evidence;
    merged.oom_kills = ended.evidence.oom_kills;
    merged.machine_oom_kills = ended.evidence.machine_oom_kills;
    merged.memory_limit_bytes = ended.evidence.memory_limit_bytes;
    merged.expired_timer = ended.evidence.expired_timer;
    ended.evidence = merged;
  }
}

void JobRecord::stop_sent(int signal) {
  if (stop_began_) return;
  stop_began_ = std::chrono::steady_clock::now();
  note(JobEventKind::stopping, {}, signal);
}

void JobRecord::attempt_drained(const AttemptRemains& remains) {
  for (Ended& ended : ended_) {
    const auto index = static_cast<size_t>(ended.failure.local_rank);
    if (index < remains.err_tails.size()) ended.failure.stderr_tail = remains.err_tails[index];
    if (index < remains.error_files.size())
      ended.failure.error_file_content = remains.error_files[index];
    ended.evidence.full_log_disk = remains.full_log_disk;
    const auto declared = declared_.find(ended.failure.local_rank);
    if (declared != declared_.end()) ended.failure.declared = declared->second;
  }
}

std::optional<JobReport> JobRecord::failure_report(int culprit_local_rank) const {
  JobReport report = report_;
  for (const Ended& one : ended_) {
    WorkerFailure failure = one.failure;
    const bool is_culprit = failure.local_rank == culprit_local_rank;
    failure.stopped_by_muster =
        !is_culprit && stop_began_ && explained_by_stop(failure.status, SIGTERM);
    report.failures.push_back(std::move(failure));
  }
  if (report.failures.empty()) return std::nullopt;
  report.end = JobEnd::failed;
  report.restarts_used = round_.restart_count;
  report.culprit = choose_culprit(report.failures);
  report.cause = classify(report.failures[*report.culprit], ended_[*report.culprit].evidence);
  return report;
}

JobReport JobRecord::error_report(const Error& error) const {
  JobReport report = report_;
  report.end = JobEnd::spawn_failed;
  report.error = error;
  return report;
}

void JobRecord::close_attempt(std::string why) {
  if (report_.attempts.empty()) return;
  AttemptRecord& attempt = report_.attempts.back();
  if (attempt.lasted == Duration{0})
    attempt.lasted = std::chrono::steady_clock::now() - attempt_started_;
  if (attempt.why_ended.empty()) attempt.why_ended = std::move(why);
}

std::string JobRecord::restart_line(int culprit_local_rank, int restarts_left, Duration delay) {
  failed_ended_ = ended_;
  stop_began_.reset();
  const auto found = std::ranges::find(failed_ended_, culprit_local_rank,
                                       [](const Ended& ended) { return ended.failure.local_rank; });
  if (found == failed_ended_.end()) return {};
  const Ended& culprit = *found;
  const Cause cause = classify(culprit.failure, culprit.evidence);
  close_attempt(fmt::format("rank {} {}", culprit.failure.rank, cause.sentence));
  JobEvent failed = event(JobEventKind::attempt_failed);
  failed.rank = culprit.failure.rank;
  failed.local_rank = culprit.failure.local_rank;
  failed.text = cause.sentence;
  emit(failed);
  note(JobEventKind::restarting, {}, {}, std::chrono::duration<double>(delay).count());
  return render_restart(culprit.failure, cause, restarts_left, options_.max_restarts, delay);
}

// The machine knows who died of our stop; the record knows what they left behind.
void JobRecord::fill_failures(const group::Outcome& outcome) {
  if (!outcome.failure) return;
  const int failed_attempt = outcome.failure->culprit.attempt;
  const std::vector<Ended>& ended =
      !ended_.empty() && ended_.front().failure.attempt == failed_attempt ? ended_ : failed_ended_;
  std::set<int> stopped;
  for (const group::WorkerEnd& worker : outcome.failure->workers) {
    if (worker.how == group::WorkerEnd::How::stopped) stopped.insert(worker.local_rank);
  }
  for (const Ended& one : ended) {
    WorkerFailure failure = one.failure;
    failure.stopped_by_muster = stopped.contains(failure.local_rank);
    report_.failures.push_back(std::move(failure));
  }
  if (report_.failures.empty()) return;
  report_.culprit = choose_culprit(report_.failures);
  report_.cause = classify(report_.failures[*report_.culprit], ended[*report_.culprit].evidence);
}

JobReport JobRecord::finish(const group::Outcome& outcome) {
  report_.end = job_end(outcome.kind);
  report_.ended = wall_now();
  report_.restarts_used = outcome.restarts;
  report_.stop_signal = outcome.signal;
  if (outcome.error) report_.error = *outcome.error;
  if (stop_began_) report_.stop_took = std::chrono::steady_clock::now() - *stop_began_;
  fill_failures(outcome);
  if (killed_) {
    for (const group::WorkerEnd& worker : outcome.workers) {
      if (worker.status && worker.status->killed_by(SIGKILL)) {
        report_.killed_ranks.push_back(round_.base_rank + worker.local_rank);
      }
    }
  }
  const std::string why = report_.culprit && report_.end == JobEnd::failed
                              ? fmt::format("rank {} {}", report_.failures[*report_.culprit].rank,
                                            report_.cause.sentence)
                              : outcome_name(report_.end);
  close_attempt(report_.end == JobEnd::success ? "all workers succeeded" : why);
  return report_;
}

void JobRecord::write_final_events(const JobReport& report, int exit_code) {
  JobEvent line = event(JobEventKind::job_ended);
  line.text = outcome_name(report.end);
  line.exit_code = exit_code;
  emit(line);
  if (attempt_ < 0) return;
  std::map<int, const WorkerFailure*> failures;
  if (report.end == JobEnd::failed) {
    for (const WorkerFailure& failure : report.failures) {
      const bool is_ours = failure.node_rank < 0 || failure.node_rank == report.node_rank;
      if (is_ours) failures[failure.local_rank] = &failure;
    }
  }
  for (size_t i = 0; i < started_.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    if (started_[i].pid == 0) continue;
    const auto failure = failures.find(local_rank);
    if (failure != failures.end()) {
      torch_line(
          torch_worker_event(torch_context(), torch_worker(local_rank), "FAILED", failure->second));
    } else {
      torch_line(torch_worker_event(torch_context(), torch_worker(local_rank),
                                    report.end == JobEnd::success ? "SUCCEEDED" : "TERMINATED"));
    }
  }
  const bool agent_did_its_work = report.end == JobEnd::success || report.end == JobEnd::failed;
  torch_line(torch_agent_event(torch_context(), agent_did_its_work ? "SUCCEEDED" : "FAILED"));
}

}  // namespace muster
