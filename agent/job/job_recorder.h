// Records a job as it runs: events.jsonl, torch's console events and the restart lines, and at the
// end the JobReport from which verdict, result.json and exit code are made. It starts and stops
// nothing, but has each attempt judged (judged_attempt.h). Control loop only; the lines go to the
// output thread through the callbacks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/detector.h"
#include "agent/hang/hang_text.h"
#include "agent/job/worker_group_events.h"
#include "agent/process/worker_environment.h"
#include "agent/process/worker_processes.h"
#include "agent/report/event_log.h"
#include "agent/report/job_report.h"
#include "agent/report/judged_attempt.h"
#include "agent/report/signs.h"
#include "agent/report/torch_events.h"

namespace muster {

// A worker's logs, and the file in which it may say why it ended; known once its streams are open.
struct WorkerTraces {
  std::string out_log;
  std::string err_log;
  std::string error_file;
  std::string device;  // Label of its device, or empty.
};

// What an attempt's workers left behind, collected on the output thread, by local rank.
struct WorkerRemains {
  WorkerPrinted printed;
  std::optional<std::string> error_file;
  std::optional<WallTime> error_file_written;  // Its mtime.
  std::optional<FailureRecord> library;
};
struct AttemptRemains {
  std::vector<WorkerRemains> workers;
  std::string full_log_disk;
};

class JobRecorder {
 public:
  struct Options {
    std::string binary;
    std::string rdzv_backend;
    bool torch_events = false;                      // --event-log-handler console
    std::function<void(std::string)> say_raw;       // A line for stderr, without our prefix.
    std::function<void(std::string)> append_event;  // A line for events.jsonl.
  };

  // `job` has what is known from the start: run_id, program, host, role and max_restarts.
  JobRecorder(JobReport job, Options options);

  void set_log_dir(std::string run_dir) { report_.log_dir = std::move(run_dir); }
  void job_started(int local_world_size);
  // A round has formed. Its workers may never be started here.
  void round_formed(const RoundView& round);
  void round_ready(int attempt, const RoundView& round, Duration took,
                   const std::vector<WorkerTraces>& traces);
  void worker_started(int local_rank, pid_t pid);
  // `machine`: the host's evidence as found right after the exit.
  void worker_exited(const WorkerExit& exit, HostEvidence machine);
  // Sets what the worker was in when it ended (WorkerFailure::call); called before attempt_drained.
  void worker_was_in(int local_rank, std::string call) {
    worker(local_rank).failure.call = std::move(call);
  }
  // Adds what was found after the worker's end: kernel log, core file, disks.
  void add_evidence(pid_t pid, const GatheredEvidence& gathered);
  // Called before the workers get the first signal of a stop. `seen` and `departures`: the state of
  // each worker just before it, by local rank. `earlier`: see StopMark.
  void stop_begins(int signal, Duration grace, const std::vector<AtStop>& seen,
                   Duration earlier = Duration{0},
                   std::vector<std::optional<Departure>> departures = {});
  void kill_sent(std::string whom);
  // Called before kill_sent: the grace of these ranks is over. Sets their `had`; returns a line.
  std::string grace_is_over(std::vector<LeftRank> left);
  void stop_ended();  // Nothing of the attempt is left.
  void timer_expired(pid_t pid, int local_rank, int signal, const std::string& scope);
  void declared_failed(int local_rank, const std::string& why);
  void stop_requested() {
    requested_at_ = requested_at_.value_or(std::chrono::steady_clock::now());
  }
  void kill_requested() { report_.kill_requested = true; }

  // ---- findings of the hang detector (job_recorder_hangs.cc): records events, returns updates
  HangNews hang_notice(const hang::Notice& notice);
  HangNews wait_ended(const hang::WaitEnded& ended);
  void went_on(const hang::WentOn& news);
  HangNews stragglers(const hang::Stragglers& stragglers);
  // `goes_on`: no rank will be failed for it.
  HangNews hang_verdict(const hang::Verdict& verdict, bool goes_on = true);
  HangNews hang_withdrawn(const hang::Withdrawn& withdrawn);
  // Records that this verdict is why the attempt fails.
  void hang_explained(uint64_t number);
  // True if that verdict is of this attempt and was not withdrawn.
  bool stands(uint64_t number) const;
  // A rank of any node is failed for a hang: the failures from now on are consequences.
  void fails_for_hang();
  // Sets the lookup for ranks of other nodes; the places of this node's own are known.
  void set_places(hang::PlaceOf others) { places_ = std::move(others); }
  // Records an update from the node that runs the detector.
  void take(const HangNews& news);

  // Judges the attempt, whose output is complete, by what this node knows.
  void attempt_drained(const AttemptRemains& remains);
  void note(JobEventKind kind, std::string text = {}, std::optional<int> signal = {},
            std::optional<double> seconds = {});
  void emit(const JobEvent& event);
  JobEvent event(JobEventKind kind) const;

  // Records that this node itself cannot go on: the program cannot be executed.
  void node_failed(const Error& error) { evidence_.error = error; }

  // What the attempt's workers left behind here, for the job's host; complete once it is drained.
  const NodeEvidence& evidence() const { return evidence_; }
  bool all_succeeded() const;  // True if all workers have exited with 0.
  // True if evidence() holds anything that the judge could need.
  bool has_evidence() const;
  void store_is_full(const std::string& line);

  // Replaces this node's own verdict on the newest judged attempt by the one over all nodes.
  void take_verdict(JudgedAttempt judged) { judged_ = std::move(judged); }

  // Called after attempt_drained: records the restart after a failed attempt, and returns the line
  // that announces it; empty if no worker's failure is the reason.
  std::string restart_line(int restarts_left, Duration delay);

  JobReport finish(const group::JobOutcome& outcome);
  void write_final_events(const JobReport& report, int exit_code);

  // How a rank's place is shown to people.
  hang::RankPlace place_of(int rank) const;

 private:
  TorchEventContext torch_context() const;
  TorchWorker torch_worker(int local_rank) const;
  void torch_line(std::string line);
  HangNews tell(JobEventKind kind, const hang::Finding& finding, const std::string& line,
                std::string text);
  std::vector<DetectedCulprit> detected() const;
  std::vector<DetectedCulprit> awaited() const;
  std::optional<HangReport> standing_verdict() const;
  void attempt_failed(const WorkerFailure& culprit, const Cause& cause);
  void close_attempt(const AttemptRecord& end);
  WorkerRecord& worker(int local_rank) { return workers_[static_cast<size_t>(local_rank)]; }

  Options options_;
  JobReport report_;
  RoundView round_;
  int attempt_ = -1;
  std::chrono::steady_clock::time_point attempt_started_;
  std::chrono::steady_clock::time_point job_started_ = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> requested_at_;

  // ---- the newest attempt
  std::vector<WorkerRecord> workers_;  // Indexed by local rank.
  int ends_ = 0;
  std::optional<StopMark> stop_;
  std::optional<Instant> failed_for_hang_;
  hang::PlaceOf places_;
  std::map<uint64_t, hang::Finding> findings_;  // Keyed by number.
  std::map<uint64_t, Instant> noticed_since_;   // When the waits of notices began.
  std::optional<hang::Finding> given_up_;       // The newest one whose waiting ranks gave up,
  Instant given_up_at_{};                       // when they did,
  bool went_on_ = false;                        // and whether they made calls after that.
  std::optional<hang::Finding> explanation_;    // The hang or mismatch that made a worker fail.

  struct Standing {
    uint64_t number = 0;  // Its finding's.
    HangReport report;
  };
  std::vector<Standing> verdicts_;  // Those that were not withdrawn, the newest last.

  NodeEvidence evidence_;
  JudgedAttempt judged_;
};

}  // namespace muster
