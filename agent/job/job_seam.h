// What a part of the agent may ask of the whole. A part is a class with its own state and timers,
// and references to the parts that it needs, which AgentLoop wires. Control loop only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/job/worker_group_events.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

class JobSeam {
 public:
  // Prints a line on the console; `warn`: unless the user silenced warnings (LOGLEVEL).
  virtual void say(const std::string& text) = 0;
  virtual void warn(const std::string& text) = 0;
  virtual void request_stop(int signal) = 0;
  // Posts to the worker group; no-op before there is one and after its end.
  virtual void post(const group::Event& event) = 0;
  // Sends to the node of that rank in this round; -1: to all others. May be lost.
  virtual void send(int to, std::string payload) = 0;
  // Gets the job's nodes, as its host knows them; none before the nodes meet.
  virtual void find_nodes(std::function<void(std::vector<membership::NodeLine>)> done) = 0;
  // Does work that may wait for a disk, on the output thread.
  virtual void on_disk(std::function<void()> work) = 0;
  // The newest attempt on this node, -1: none yet, and its place in the job.
  virtual int attempt() const = 0;
  virtual const RoundView& round() const = 0;
  // The folder in which this job's files are kept; empty: none.
  virtual std::string log_folder() const = 0;
  // This node's rank, in the newest round or as it was given; -1: unknown before the nodes meet.
  virtual int node_rank() const = 0;
  // True if workers run, or will: the machine (worker_group.h) has begun and has not finished.
  virtual bool has_workers() const = 0;
  // True once the job's end has begun.
  virtual bool is_ending() const = 0;

 protected:
  ~JobSeam() = default;
};

}  // namespace muster
