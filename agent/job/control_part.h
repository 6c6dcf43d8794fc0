// musterctl's access to a running job: its socket, and the answers about status, signals and logs.
// The hooks that workers get lie beside the socket. Control loop only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/control/control_server.h"
#include "agent/hang/rings.h"
#include "agent/job/agent.h"
#include "agent/job/bundles.h"
#include "agent/job/job_answers.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/own_ranks.h"
#include "agent/output/output.h"
#include "agent/process/worker_processes.h"

namespace muster {

class ControlPart {
 public:
  struct Callbacks {
    // Adds the phase, the epoch and the membership changes.
    std::function<void(control::JobStatus&)> add_progress;
    std::function<void(std::function<void(const std::vector<WorkerTail>&)>)> tails;
  };
  struct Parts {
    WorkerProcesses& processes;
    Rings& rings;
    JobRecorder& record;
    OwnRanks& own_ranks;
    JobAnswers& answers;
    Bundles& bundles;
  };

  ControlPart(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
              const WorkerProgram& program, const std::string& run_id, const Parts& parts,
              Callbacks callbacks);

  // Opens the socket; the job goes on without it or the hooks if that fails.
  void open(const ControlPlace& place);
  void close();

  // The folder of Python's hook, and the path of NCCL's; empty: workers get none.
  const std::string& python_hook() const { return python_hook_; }
  const std::string& nccl_plugin() const { return nccl_plugin_; }

 private:
  control::JobStatus status();
  void give_status(ControlHandlers::StatusDone done);
  Result<void> signal_ranks(int signal, const control::RankRanges& ranks);
  void give_logs(const LogsQuery& query, ControlHandlers::LogsDone done);
  tl::unexpected<Error> ranks_of_other_nodes();

  boost::asio::io_context& io_;
  JobSeam& job_;
  const LaunchSpec& spec_;
  const WorkerProgram& program_;
  const std::string& run_id_;
  const Parts parts_;
  const Callbacks callbacks_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::unique_ptr<ControlServer> server_;
  std::optional<ControlServer::Socket> socket_;
  std::string python_hook_;
  std::string nccl_plugin_;
};

}  // namespace muster
