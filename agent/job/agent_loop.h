// The agent's event loop and everything that runs on it. Internal to agent/; other code includes
// agent.h. The order of a job:
//
//   start         the run folder, on the output thread; the GPU driver queried in a child process
//                 if a flag needs it; node setup
//   each attempt  RequestRound: old GPU memory free, the round formed, streams opened -> RoundReady
//                 Spawn, one worker per turn of the loop -> Spawned ... Exited -> (Stop, Kill) ->
//                 nothing left -> output drained -> GroupEmpty
//   end           record, verdict, result.json, output finished, exit code
//
// Signals are handled during every one of these steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/control_channel.h"
#include "agent/hang/rings.h"
#include "agent/hang/site_names.h"
#include "agent/job/agent.h"
#include "agent/job/bundles.h"
#include "agent/job/control_part.h"
#include "agent/job/drain.h"
#include "agent/job/ending.h"
#include "agent/job/engine_part.h"
#include "agent/job/hang_part.h"
#include "agent/job/job_answers.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/node_setup.h"
#include "agent/job/own_interface.h"
#include "agent/job/own_ranks.h"
#include "agent/job/time_limit.h"
#include "agent/job/torch_timers.h"
#include "agent/job/worker_group.h"
#include "agent/output/output.h"
#include "agent/process/helper_process.h"
#include "agent/process/master_port.h"
#include "agent/process/worker_processes.h"
#include "agent/report/evidence.h"
#include "rendezvous/backends/rendezvous.h"
#include "rendezvous/base/process_limit.h"
#include "rendezvous/net/drive.h"

namespace muster {

class AgentLoop final : private JobSeam {
 public:
  AgentLoop(const AgentInput& input, const AgentContext& context);
  AgentLoop(const AgentLoop&) = delete;
  AgentLoop& operator=(const AgentLoop&) = delete;

  // Runs the job; returns the exit code.
  int run();

  // Whether a write of the output thread may still hang.
  bool abandoned() const { return abandoned_; }

 private:
  // ---- start (agent_loop.cc)
  bool start();
  std::string usable_temp_dir() const;
  void on_run_open(Result<RunFolders> folders);
  void ask_driver(const char* flag, Duration limit, HelperProcess::Done done);
  void set_up(std::optional<DeviceReport> devices);
  void begin_group();
  void add_progress(control::JobStatus& status);
  JobReport begun_report() const;
  JobRecorder::Options recorder_options();

  // ---- the front (agent_loop.cc)
  void listen_to_front();
  void on_control(const ControlMessage& message);
  [[noreturn]] void die_with_the_front();
  void request_kill(int signal);

  // ---- effects of the machine (agent_effects.cc)
  void perform(const group::Effect& effect);
  void on(const group::RequestRound& effect);
  void on(const group::Spawn& effect);
  void on(const group::WorkerFailed& effect);
  void on(const group::Stop& effect);
  void on(const group::StopRest& effect);
  void on(const group::Kill& effect);
  void begin_stop(int signal);
  Duration grace() const;
  void on(const group::ReportStopping& effect);
  void on(const group::WatchLeftovers& effect);
  void on(const group::ReportLeftovers& effect);
  void on(const group::SuspendWorkers& effect);
  void on(const group::ResumeWorkers& effect);
  void on(const group::ForwardSignal& effect);
  void on(const group::BackOff& effect);
  void on(const group::Succeeded& effect);
  void on(const group::Note& effect);
  void on(const group::Finish& effect);

  // ---- an attempt (agent_attempt.cc)
  void wait_for_device_memory(group::RequestRound request,
                              std::chrono::steady_clock::time_point give_up);
  void prepare_round(const group::RequestRound& request);
  void open_timers(const group::RequestRound& request);
  void open_round(const group::RequestRound& request);
  void drop_round();
  void refuse_streams(int attempt, const Error& error);
  void on_streams(int attempt, Result<std::vector<WorkerStreams>> streams);
  RoundView round_view(int restart_count) const;
  void spawn_worker(int attempt, int local_rank);
  WorkerVariables worker_variables(int local_rank) const;
  RoundView told_round() const;
  void find_host_by_pmi(std::function<void()> next);
  void find_node_of_task(const group::RequestRound& request, int tries_left);
  SpawnRequest spawn_request(int local_rank);
  bool stdin_belongs_to_others() const;
  void on_worker_exit(const WorkerExit& exit);
  void on_group_empty();
  void on_refused(const ProcessEntry& process);
  void read_to_the_ends();
  void take_remains(const AttemptRemains& remains);
  void gather(const WorkerExit& exit);

  // ---- the other nodes (agent_rendezvous.cc)
  void find_token(std::function<void(std::string)> next);
  bool open_rendezvous(const std::string& token);
  void request_round(const group::RequestRound& request);
  void report_failure(int local_rank, int exit_code, std::string sentence, bool final);
  void report_failure(const Error& error, int local_rank);
  void report_evidence(membership::Epoch epoch);
  void tell_evidence(membership::Epoch epoch);
  void say_job_restart();
  bool shares_console() const;
  bool another_says_it() const;
  bool another_says_the_end(const JobReport& report) const;
  void on_round(const membership::Round& round);
  void on_stop_order(const member::StopWorkers& stop);
  void on_leave_announced();
  void on_datagram(const membership::Delivered& datagram);
  void on_job_ended(const membership::End& end);
  void on_rendezvous_failed(const Error& error);

  // ---- the end (agent_effects.cc)
  void say_restart(Duration delay = Duration{0});
  void end(const group::JobOutcome& outcome);
  void fail_early(const Error& error);
  void say_goodbye();
  void perform(const Ending::Effect& effect);
  std::string notice_text(Ending::Notice what) const;

  // ---- what its parts may ask
  void say(const std::string& text) override { output_->say("muster: " + text); }
  void warn(const std::string& text) override;
  void request_stop(int signal) override;
  void post(const group::Event& event) override;
  void send(int to, std::string payload) override;
  void find_nodes(std::function<void(std::vector<membership::NodeLine>)> done) override;
  int node_rank() const override;
  bool is_running() const override { return drive_ && !ending_; }
  bool is_ending() const override { return ending_; }
  void on_disk(std::function<void()> work) override { output_->perform(std::move(work)); }
  int attempt() const override { return attempt_; }
  const RoundView& round() const override { return round_; }
  std::string log_folder() const override {
    return folders_.temporary ? std::string() : folders_.run_dir;
  }

  std::string lookup(std::string_view name) const;

  const LaunchSpec& spec_;
  const WorkerProgram& program_;
  const Environment& environment_;
  const std::vector<std::string>& warnings_;
  const AgentContext context_;

  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor control_;
  boost::asio::steady_timer pause_;  // Between two checks of the GPU memory.
  boost::asio::steady_timer last_words_limit_;
  std::string run_id_;
  JobRecorder record_;
  WorkerProcesses processes_;
  Rings rings_;
  EnginePart engine_;  // Its witness is forked before there are threads.
  TimeLimit time_limit_;
  SiteNames site_names_;
  OwnRanks own_ranks_;
  JobAnswers answers_;
  Bundles bundles_;
  HangPart hang_part_;
  ControlPart control_part_;
  TorchTimers torch_timers_;
  OwnInterface own_interface_;
  Drain drain_;
  Ending end_;
  Drive<Ending, Ending::Tick> end_drive_;
  HelperProcess driver_;
  KernelLog kernel_log_;  // Marked as an attempt starts, then read on the output thread.
  std::unique_ptr<Output> output_;
  OomWatch oom_;
  ProcessLimits process_limits_;

  NodeSetup setup_;
  std::string pmi_host_;  // Of rank 0, and the launch's id, if they were asked for.
  std::string pmi_job_;
  std::optional<Environment> inherited_;  // By the workers, where that is not ours.
  std::optional<TaskPlace> task_;         // As the spec's; its node may become known later.
  std::string cwd_;
  std::string temp_dir_;
  RunFolders folders_;
  UniqueFd null_fd_;
  std::optional<MasterPort> master_port_;  // Only if the workers create their own store.
  RoundView round_;
  std::chrono::steady_clock::time_point round_requested_;
  std::vector<WorkerStreams> streams_;  // Of this attempt; emptied rank by rank as workers start.
  std::vector<WorkerTraces> traces_;    // By local rank.
  bool stop_began_ = false;             // In this attempt.
  std::optional<group::WorkerFailed> failed_;  // Reported once the output is complete.
  int attempt_ = -1;
  bool spawn_pending_ = false;         // A Spawn is to be performed in the next turn of the loop.
  bool empty_while_spawning_ = false;  // Nothing was left meanwhile: check again.

  bool coordinated_ = false;  // See is_coordinated().
  std::unique_ptr<Rendezvous> rendezvous_;
  membership::Round job_round_;  // The newest one that formed.
  std::optional<group::RequestRound> wanted_round_;
  bool opening_round_ = false;  // A round has formed and its streams are being opened.
  bool round_dropped_ = false;  // That round was ended meanwhile.
  std::optional<int> leaving_signal_;
  bool ended_well_ = false;  // It succeeded, or ended as it was told to.
  std::optional<membership::End> job_end_;
  bool heard_end_ = false;  // From the job's host, where all nodes hear it.

  std::optional<WorkerGroup> group_;
  std::optional<Drive<WorkerGroup, group::Tick>> drive_;
  bool has_gpus_ = false;  // As far as it was queried.
  bool ending_ = false;
  bool abandoned_ = false;   // The output, of which a write may still hang.
  std::string last_screen_;  // Until the output thread has it.
  int exit_code_ = 0;
  bool succeeded_ = false;
};

}  // namespace muster
