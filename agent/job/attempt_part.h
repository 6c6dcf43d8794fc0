// One attempt of the job on this node, from the request for a round to the last byte of output.
// Control loop only.
//
//   prepare() ─▶ the last output is read, GPU memory is free ─▶ the nodes meet ─▶ open() ─▶ streams
//   ─▶ RoundReady ─▶ spawn() ─▶ Spawned ... on_exit() ─▶ Exited ... on_empty() ─▶ GroupEmpty, and
//   the output is read to its end
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/hang/rings.h"
#include "agent/job/agent.h"
#include "agent/job/control_part.h"
#include "agent/job/drain.h"
#include "agent/job/gpu_driver.h"
#include "agent/job/job_folders.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/meeting_part.h"
#include "agent/job/remains.h"
#include "agent/job/stop_part.h"
#include "agent/job/torch_timers.h"
#include "agent/job/worker_start.h"
#include "agent/output/output.h"
#include "agent/process/master_port.h"
#include "agent/process/worker_processes.h"

namespace muster {

class AttemptPart {
 public:
  struct Parts {
    WorkerProcesses& processes;
    JobRecorder& record;
    Rings& rings;
    Output& output;
    GpuDriver& driver;
    OwnRanks& own_ranks;
    Bundles& bundles;
    HangPart& hang_part;
    ControlPart& control;
    MeetingPart& meeting;
    StopPart& stop;
    Drain& drain;
  };

  AttemptPart(boost::asio::io_context& io, JobSeam& job, const AgentInput& input,
              const AgentContext& context, const JobFolders& folders, const NodeSetup& setup,
              const Parts& parts);

  // Called as the job starts. Fails with ExitCode::environment.
  Result<void> open_null() { return start_.open_null(); }
  // Called before the first attempt.
  void begin_job() { timers_.watch_uninterruptible(); }

  // ---- effects of WorkerGroup
  void prepare(const group::RequestRound& request);
  // Starts one worker per turn of the loop, so that signals and exits are seen during 200 starts.
  void spawn(const group::Spawn& effect);

  void open(const group::RequestRound& request);
  void on_exit(const WorkerExit& exit);
  void on_empty();
  // ---- callbacks of Drain
  void read_to_the_ends();
  void take_remains(const AttemptRemains& remains);

  void cancel();

  // The newest attempt; -1: none yet.
  int number() const { return attempt_; }
  const RoundView& round() const { return round_; }
  HostEvidence memory() const { return remains_.memory(); }
  // The environment of the worker with local rank 0.
  Environment variables() const { return start_.environment(0, round_); }

 private:
  void open_timers(const group::RequestRound& request);
  void on_streams(int attempt, Result<std::vector<WorkerStreams>> streams);
  void start_worker(int attempt, int local_rank);

  boost::asio::io_context& io_;
  JobSeam& job_;
  const Environment& environment_;
  const std::string& temp_dir_;
  const NodeSetup& setup_;
  const Parts parts_;
  boost::asio::steady_timer last_words_limit_;
  TorchTimers timers_;
  WorkerStart start_;
  Remains remains_;
  std::optional<MasterPort> master_port_;  // Set only if the workers create their own store.
  RoundView round_;
  int attempt_ = -1;
  std::chrono::steady_clock::time_point requested_;
  std::vector<WorkerStreams> streams_;  // Emptied rank by rank as workers start.
  std::vector<WorkerTraces> traces_;    // Indexed by local rank.
  bool spawn_pending_ = false;          // A Spawn is to be performed in the next turn of the loop.
  bool empty_while_spawning_ = false;   // on_empty() came before that: check again.
};

}  // namespace muster
