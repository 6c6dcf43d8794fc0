// This node's part in the rendezvous (rendezvous/backends/rendezvous.h): reports what its workers
// do, and carries out what the job's host decides. A job of one node takes the same path, but its
// Rendezvous only opens a store. Control loop only.
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
#include "agent/job/rendezvous_options.h"
#include "agent/job/time_limit.h"
#include "agent/launch_spec.h"
#include "rendezvous/backends/rendezvous.h"

namespace muster {

class MeetingPart {
 public:
  struct Parts {
    WorkerProcesses& processes;
    JobRecorder& record;
    EnginePart& engine;
    TimeLimit& time_limit;
    JobAnswers& answers;
    HangPart& hang_part;
    Drain& drain;
  };

  // `begin` is called when the attempt of a request may open.
  MeetingPart(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
              const Environment& environment, const Parts& parts,
              std::function<void(const group::RequestRound&)> begin);

  // True if the job's host decides about restarts and the end.
  bool is_coordinated() const { return is_coordinated_; }
  // Completes `node`, opens the rendezvous, and calls `done` unless the job ends meanwhile. Fails
  // if the token or PMI cannot be read, or if the machine refuses.
  void open(const NodeFacts& node, std::function<void(const Result<NodeFacts>&)> done);

  // ---- what happens on this node
  // Requests a round. REQUIRES: nothing of an earlier attempt is alive.
  void want_round(const group::RequestRound& request);
  // Called when the round that began has its streams; false: it was ended meanwhile.
  bool end_opening() { return std::exchange(round_, RoundStage::none) != RoundStage::dropped; }
  void worker_failed(const group::WorkerFailed& failure);
  // Reports that this node cannot start a worker.
  void node_failed(const Error& error, int local_rank = 0);
  // Sends the job's judge what the workers of that epoch left behind.
  void report_evidence(membership::Epoch epoch);
  // Sends it, and reports that nothing of them is alive and their output is complete.
  void testify(membership::Epoch epoch);
  // Reports that all workers have succeeded and nothing of them is left.
  void workers_done();
  // Leaves because of this signal. The other nodes know it before the grace begins on any node.
  void leave(int signal);

  // ---- what is known
  // The newest round that formed; its epoch is 0 before there is one.
  const membership::Round& round() const { return job_round_; }
  int node_rank() const;
  // That round for this node's workers; told() adapts it to the engine's tasks, if there are any.
  RoundView view(int restart_count) const;
  RoundView told(const RoundView& view) const { return own_task_.told(view); }
  const std::optional<InterfaceExport>& interface() const { return own_interface_.choice(); }
  // One line for people; empty: nothing is waited for.
  std::string status() const;
  void find_nodes(std::function<void(std::vector<membership::NodeLine>)> done);
  void send(int to, std::string payload);

  // ---- lines on the console
  // Called once the attempt's output is complete, so that the line follows what it is about.
  void say_restart(Duration delay = Duration{0}) { announcer_.say_restart(delay); }
  // True if another node prints on this console what all nodes are told.
  bool another_says_it() const { return announcer_.another_says_it(job_round_); }
  bool another_says_the_end(const JobReport& report) const;

  // ---- the end
  const std::optional<membership::End>& end() const { return job_end_; }
  void cancel();
  // Says goodbye, then calls `next`; the job's host first stays as long as other nodes need it.
  void close(std::function<void()> next);

 private:
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
  group::RequestRound request_;  // The one that this round is for.
  std::optional<int> leaving_signal_;
  std::optional<membership::End> job_end_;
  bool heard_end_ = false;  // The end came from the job's host, which tells all nodes.
};

}  // namespace muster
