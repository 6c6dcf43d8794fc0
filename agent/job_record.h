// What happened to a job, written down as it happens: events.jsonl and torch's console events while
// it runs, the restart lines, and at the end the JobReport from which verdict, result.json and exit
// code are made. It watches and never decides. Control loop only; the lines go to the output thread
// through the callbacks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/report/event_log.h"
#include "agent/report/job_report.h"
#include "agent/report/torch_events.h"
#include "agent/worker_environment.h"
#include "agent/worker_group_events.h"
#include "agent/worker_processes.h"

namespace muster {

// Where one worker's traces are, known when its streams are opened.
struct WorkerTraces {
  std::string out_log;
  std::string err_log;
  std::string error_file;
  std::string device;  // Label of its device, or empty.
};

// What an attempt has left, by local rank, collected on the output thread.
struct AttemptRemains {
  std::vector<std::string> err_tails;
  std::vector<std::optional<std::string>> error_files;
  std::string full_log_disk;
};

class JobRecord {
 public:
  struct Options {
    std::string run_id;
    std::string program;
    std::string binary;
    std::string host;
    std::string rdzv_backend;
    int max_restarts = 0;
    std::string role = "default";
    bool torch_events = false;                      // --event-log-handler console
    std::function<void(std::string)> say_raw;       // A line for stderr, without our prefix.
    std::function<void(std::string)> append_event;  // A line for events.jsonl.
  };

  explicit JobRecord(Options options);

  void set_log_dir(std::string run_dir) { report_.log_dir = std::move(run_dir); }
  void job_started(int local_world_size);
  void round_ready(int attempt, const RoundView& round, Duration took,
                   std::vector<WorkerTraces> traces);
  void worker_started(int local_rank, pid_t pid);
  // `evidence` as found right after the death.
  void worker_exited(const WorkerExit& exit, HostEvidence evidence);
  // What was found later of a worker that has ended: core file, disks.
  void add_evidence(pid_t pid, const HostEvidence& evidence);
  void stop_sent(int signal);
  void kill_sent() { killed_ = true; }
  void timer_expired(pid_t pid, const std::string& scope) { expired_timers_[pid] = scope; }
  // The attempt's output is complete.
  void attempt_drained(const AttemptRemains& remains);
  void declared_failed(int local_rank, const std::string& why) { declared_[local_rank] = why; }
  void note(JobEventKind kind, std::string text = {}, std::optional<int> signal = {},
            std::optional<double> seconds = {});

  // After attempt_drained: the attempt's failures as far as this node knows them, for the other
  // nodes. None if the culprit's end was not seen.
  std::optional<JobReport> failure_report(int culprit_local_rank) const;

  // The same for an error of the node itself: the program cannot be executed.
  JobReport error_report(const Error& error) const;

  // After attempt_drained of a failed attempt that will be followed by another one.
  std::string restart_line(int culprit_local_rank, int restarts_left, Duration delay);

  // The whole story. After it nothing more is recorded.
  JobReport finish(const group::Outcome& outcome);
  void write_final_events(const JobReport& report, int exit_code);

 private:
  struct Ended {
    WorkerFailure failure;
    HostEvidence evidence;
  };
  struct Started {
    pid_t pid = 0;
    bool exited = false;
  };

  JobEvent event(JobEventKind kind) const;
  void emit(const JobEvent& event);
  TorchEventContext torch_context() const;
  TorchWorker torch_worker(int local_rank) const;
  void torch_line(std::string line);
  void close_attempt(std::string why);
  void fill_failures(const group::Outcome& outcome);

  Options options_;
  JobReport report_;
  RoundView round_;
  int attempt_ = -1;
  std::chrono::steady_clock::time_point attempt_started_;
  std::chrono::steady_clock::time_point job_started_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> stop_began_;
  std::vector<WorkerTraces> traces_;
  std::vector<Started> started_;
  std::vector<Ended> ended_;         // Of this attempt, not succeeded, in order of observation.
  std::vector<Ended> failed_ended_;  // Of the newest failed attempt.
  std::map<pid_t, std::string> expired_timers_;
  std::map<int, std::string> declared_;  // Failed by our own word, by local rank.
  bool killed_ = false;
};

}  // namespace muster
