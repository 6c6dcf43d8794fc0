// What a node finds out about itself for MeetingPart: before it meets the others (MeetingFacts),
// and once a round has formed (OwnTask, OwnInterface). Control loop only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/job/job_seam.h"
#include "agent/job/rendezvous_options.h"
#include "agent/launch_spec.h"
#include "agent/process/helper_process.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/net/interface_choice.h"
#include "rendezvous/net/resolve.h"

namespace muster {

// Finds out what a node needs to meet the others: the job's token, from a file, and the host's
// address, through the PMI of the launch that started all agents.
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

// The place of this agent's task if each task of an engine runs an agent of its own. If the engine
// says only which tasks share a node, the nodes are numbered by their first tasks once the agents
// have met; tasks never move.
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

// Chooses the interface for the workers' libraries (rendezvous/net/interface_choice.h), from what
// this machine's name resolves to and its address towards the other nodes.
class OwnInterface {
 public:
  OwnInterface(boost::asio::io_context& io, const RendezvousSpec& spec,
               const Environment& environment)
      : spec_(spec), environment_(environment), names_(io) {}

  // Runs while the nodes meet, so that it costs no time.
  void look_up_own_name();
  // Calls `next` once the name is resolved; at once if it is not needed.
  void when_own_name_is_known(std::function<void()> next);
  // `towards_peers`: our address. Returns a line about the choice; empty: none, or chosen before.
  std::string choose(const std::string& towards_peers);
  const std::optional<InterfaceExport>& choice() const { return choice_; }

 private:
  bool is_set(std::string_view variable) const {
    return environment_.contains(std::string(variable));
  }

  const RendezvousSpec& spec_;
  const Environment& environment_;
  Resolver names_;
  bool is_known_ = true;
  std::string own_name_fault_;
  std::function<void()> next_;
  std::optional<InterfaceExport> choice_;
};

}  // namespace muster
