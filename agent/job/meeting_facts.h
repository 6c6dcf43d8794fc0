// Finds out what a node needs to meet the others: the job's token, from a file, and the host's
// address, through the PMI of the launch that started all agents. Control loop only.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>

#include "agent/job/job_seam.h"
#include "agent/job/rendezvous_options.h"
#include "agent/launch_spec.h"
#include "agent/process/helper_process.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"

namespace muster {

class MeetingFacts {
 public:
  using Done = std::function<void(Result<NodeFacts>)>;

  MeetingFacts(boost::asio::io_context& io, JobSeam& job, const RendezvousSpec& spec,
               const Environment& environment, WorkerProcesses& processes)
      : io_(io), job_(job), spec_(spec), environment_(environment), helper_(io, processes) {}

  // Fills in the token and what PMI says, and calls `done` unless the job ends meanwhile.
  void find(const NodeFacts& node, Done done);
  void cancel() { helper_.cancel(); }

 private:
  void ask_launch(NodeFacts node, const Done& done);

  boost::asio::io_context& io_;
  JobSeam& job_;
  const RendezvousSpec& spec_;
  const Environment& environment_;
  HelperProcess helper_;
};

}  // namespace muster
