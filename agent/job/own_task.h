// The place of this agent's task if each task of an engine runs an agent of its own. If the engine
// says only which tasks share a node, the nodes are numbered by their first tasks once the agents
// have met; tasks never move. Control loop only.
#pragma once

#include <functional>
#include <optional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/job/job_seam.h"
#include "agent/launch_spec.h"
#include "rendezvous/base/error.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

class OwnTask {
 public:
  OwnTask(boost::asio::io_context& io, JobSeam& job, const std::optional<TaskPlace>& task)
      : job_(job), task_(task), pause_(io) {}

  // Calls `next` once the place in `round` is known. Fails with ExitCode::rendezvous after 2 s.
  void find(const membership::Round& round, std::function<void(Result<void>)> next);
  void cancel() { pause_.cancel(); }

  bool is_first() const { return !task_ || task_->local_rank == 0; }
  // The round in the form that the workers get.
  RoundView told(RoundView view) const;

 private:
  void ask(const membership::Round& round, int tries_left,
           const std::function<void(Result<void>)>& next);

  JobSeam& job_;
  std::optional<TaskPlace> task_;
  boost::asio::steady_timer pause_;
};

}  // namespace muster
