// The agent's event loop. Owns and wires all that runs on it: the machine that decides
// (worker_group.h), and the parts, which reach the whole through JobSeam and some other parts by
// reference. Internal to agent/; other code includes agent.h. The order of a job, whose signals are
// handled in every step:
//
//   start         the run folder, on the output thread; the GPU driver queried in a child process
//                 if a flag needs it; node setup; what a node must know to meet the others
//   each attempt  RequestRound: old GPU memory free, the round formed, streams opened -> RoundReady
//                 Spawn, one worker per turn of the loop -> Spawned ... Exited -> (Stop, Kill) ->
//                 nothing left -> output drained -> GroupEmpty
//   end           record, verdict, result.json, output finished, exit code
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/control_channel.h"
#include "agent/hang/rings.h"
#include "agent/job/agent.h"
#include "agent/job/attempt_part.h"
#include "agent/job/bundles.h"
#include "agent/job/control_part.h"
#include "agent/job/drain.h"
#include "agent/job/end_part.h"
#include "agent/job/engine_part.h"
#include "agent/job/gpu_driver.h"
#include "agent/job/hang_part.h"
#include "agent/job/job_answers.h"
#include "agent/job/job_folders.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/meeting_part.h"
#include "agent/job/node_setup.h"
#include "agent/job/own_ranks.h"
#include "agent/job/stop_part.h"
#include "agent/job/time_limit.h"
#include "agent/job/worker_group.h"
#include "agent/output/output.h"
#include "agent/process/worker_processes.h"
#include "agent/report/text.h"
#include "rendezvous/net/drive.h"

namespace muster {

class AgentLoop final : private JobSeam {
 public:
  AgentLoop(const AgentInput& input, const AgentContext& context, std::string run_id,
            JobFolders folders, std::unique_ptr<SignalWitness> witness,
            std::unique_ptr<Output> output);
  AgentLoop(AgentLoop&&) = delete;

  // Runs the job; returns the exit code.
  int run();

  bool abandons_output() const { return end_.abandons_output(); }

 private:
  struct RunningGroup {
    RunningGroup(boost::asio::io_context& io, const WorkerGroup::Options& options,
                 std::function<void(const group::Effect&)> perform)
        : machine(options), drive(io, machine, std::move(perform)) {}

    WorkerGroup machine;
    Drive<WorkerGroup, group::Tick> drive;
  };

  // ---- start
  void on_run_open(Result<RunFolders> folders);
  void set_up(std::optional<DeviceReport> devices);
  Result<void> check_room() const;
  void begin_group();
  JobReport begun_report() const;
  JobRecorder::Options recorder_options();

  // ---- the front
  void listen_to_front();
  void on_control(const ControlMessage& message);
  [[noreturn]] void die_with_the_front();
  void request_kill(int signal);

  void perform(const group::Effect& effect);
  void add_progress(control::JobStatus& status);
  void finish(const group::JobOutcome& outcome);
  void end(const group::JobOutcome& outcome);
  void fail_early(const Error& error);

  // ---- JobSeam
  void say(const std::string& text) override { output_->say("muster: " + clean_message(text)); }
  void warn(const std::string& text) override;
  void request_stop(int signal) override;
  void post(const group::Event& event) override;
  void send(int to, std::string payload) override { meeting_.send(to, std::move(payload)); }
  void find_nodes(std::function<void(std::vector<membership::NodeLine>)> done) override {
    meeting_.find_nodes(std::move(done));
  }
  int node_rank() const override { return meeting_.node_rank(); }
  bool has_workers() const override { return group_ && !group_->machine.finished(); }
  bool is_ending() const override { return end_.is_claimed(); }
  void on_disk(std::function<void()> work) override { output_->perform(std::move(work)); }
  int attempt() const override { return attempt_.number(); }
  const RoundView& round() const override { return attempt_.round(); }
  std::string log_folder() const override { return folders_.logs(); }

  const AgentInput& input_;
  const AgentContext context_;
  std::string run_id_;
  JobFolders folders_;
  NodeSetup setup_;
  boost::asio::io_context io_{1};
  boost::asio::posix::stream_descriptor control_;
  // Has no request in flight once run() has returned, unless it is abandoned.
  const std::unique_ptr<Output> output_;
  JobRecorder record_;
  WorkerProcesses processes_;
  Rings rings_;
  EnginePart engine_;
  TimeLimit time_limit_;
  OwnRanks own_ranks_;
  JobAnswers answers_;
  Bundles bundles_;
  HangPart hang_part_;
  ControlPart control_part_;
  GpuDriver driver_;
  Drain drain_;
  MeetingPart meeting_;
  StopPart stop_;
  AttemptPart attempt_;
  EndPart end_;
  std::optional<RunningGroup> group_;  // Set by begin_group().
};

}  // namespace muster
