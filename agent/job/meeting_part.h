// This node's place among the nodes of the job: tells them what its workers do, and carries out
// what they decide (rendezvous/backends/rendezvous.h). A job of one node takes the same path, but
// its Rendezvous only opens a store. Control loop only.
//
//   want_round() ─▶ a round forms ─▶ this node's interface and place are known, the output of the
//   last attempt is complete ─▶ begin ─▶ end_opening()
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/job/announcer.h"
#include "agent/job/drain.h"
#include "agent/job/engine_part.h"
#include "agent/job/hang_part.h"
#include "agent/job/job_answers.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/meeting_facts.h"
#include "agent/job/own_interface.h"
#include "agent/job/own_task.h"
#include "agent/job/rendezvous_options.h"
#include "agent/job/time_limit.h"
#include "agent/launch_spec.h"
#include "rendezvous/backends/rendezvous.h"

namespace muster {

class MeetingPart {
 public:
  // What it tells of the others.
  struct Parts {
    WorkerProcesses& processes;
    JobRecorder& record;
    EnginePart& engine;
    TimeLimit& time_limit;
    JobAnswers& answers;
    HangPart& hang_part;
    Drain& drain;
  };

  // `begin`: the attempt of this request may open.
  MeetingPart(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
              const Environment& environment, const Parts& parts,
              std::function<void(const group::RequestRound&)> begin);

  // Whether the job's host decides about restarts and the end.
  bool is_coordinated() const { return is_coordinated_; }
  // Finds out what is missing in `node`, and goes where the nodes meet. Calls `done` with all of
  // it, unless the job ends meanwhile; fails if the token or the launch cannot be read, or if the
  // machine refuses.
  void open(const NodeFacts& node, std::function<void(const Result<NodeFacts>&)> done);

  // ---- what happens on this node
  // Nothing of an earlier attempt is alive.
  void want_round(const group::RequestRound& request);
  // The round that began has its streams; false: it was ended meanwhile.
  bool end_opening() { return std::exchange(round_, RoundStage::none) != RoundStage::dropped; }
  void worker_failed(const group::WorkerFailed& failure);
  // This node cannot start a worker.
  void node_failed(const Error& error, int local_rank = 0);
  // The job's judge gets what the workers of that epoch left behind.
  void report_evidence(membership::Epoch epoch);
  // That is all: nothing of them is alive, and their output is complete.
  void testify(membership::Epoch epoch);
  // All workers have succeeded, and nothing of them is left.
  void workers_done();
  // For this signal. The other nodes are told before the grace begins on any node.
  void leave(int signal);

  // ---- what is known
  // The newest round that formed; its epoch is 0 before there is one.
  const membership::Round& round() const { return job_round_; }
  int node_rank() const;
  // That round, for the workers of this node. `told`: as they are told of it, where a task has its
  // place among the engine's tasks.
  RoundView view(int restart_count) const;
  RoundView told(const RoundView& view) const { return own_task_.told(view); }
  const std::optional<InterfaceExport>& interface() const { return own_interface_.choice(); }
  // One line for people; empty: nothing is waited for.
  std::string status() const;
  void find_nodes(std::function<void(std::vector<membership::NodeLine>)> done);
  void send(int to, std::string payload);

  // ---- words
  // Once the attempt's output is complete, so that the line follows the output that it is about.
  void say_restart(Duration delay = Duration{0}) { announcer_.say_restart(delay); }
  // Whether what all nodes are told appears on this console without this node.
  bool another_says_it() const { return announcer_.another_says_it(job_round_); }
  bool another_says_the_end(const JobReport& report) const;

  // ---- the end
  const std::optional<membership::End>& end() const { return job_end_; }
  void cancel();
  // The job's host stays as long as other nodes need it, and then calls `next`.
  void close(std::function<void()> next);

 private:
  // How far a round is that is wanted, or being opened.
  enum class RoundStage { none, wanted, opening, dropped };

  Result<void> go(const NodeFacts& node);
  Rendezvous::Handlers handlers();
  void on_round(const membership::Round& round);
  void find_place();
  void on_stop_order(const member::StopWorkers& stop);
  void on_datagram(const membership::Delivered& datagram);
  void on_job_ended(const membership::End& end);
  void on_failed(const Error& error);
  void report_failure(membership::NodeFailure failure, int local_rank);
  void tell_evidence(membership::Epoch epoch);

  boost::asio::io_context& io_;
  JobSeam& job_;
  const LaunchSpec& spec_;
  const Parts parts_;
  const std::function<void(const group::RequestRound&)> begin_;
  const bool is_coordinated_;
  MeetingFacts facts_;
  OwnInterface own_interface_;
  OwnTask own_task_;
  Announcer announcer_;
  NodeFacts node_;
  std::unique_ptr<Rendezvous> rendezvous_;
  membership::Round job_round_;
  RoundStage round_ = RoundStage::none;
  group::RequestRound request_;  // For which that round is.
  std::optional<int> leaving_signal_;
  std::optional<membership::End> job_end_;
  bool heard_end_ = false;  // From the job's host, where all nodes hear it.
};

}  // namespace muster
