// Reads the records and the stacks of this node's ranks, also just before SIGKILL.
// Control loop only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/control/control_protocol.h"
#include "agent/hang/records_text.h"
#include "agent/hang/rings.h"
#include "agent/hang/site_names.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/process/worker_processes.h"
#include "agent/stacks/stack_reader.h"

namespace muster {

class OwnRanks {
 public:
  using ReplyDone = std::function<void(control::Reply)>;
  struct Callbacks {
    std::function<void(int)> was_held;  // Gets a rank that was stopped for its stacks.
    std::function<std::string(const std::string&)> name_of_group;  // Gets a group's key.
    std::function<HostEvidence()> memory;  // What is known of out-of-memory kills.
  };

  OwnRanks(boost::asio::io_context& io, const JobSeam& job, WorkerProcesses& processes,
           Rings& rings, Callbacks callbacks);

  SiteNames& site_names() { return site_names_; }
  // Sets the folder in which Python programs write their stacks on request.
  void set_stack_folder(std::string folder) { stack_folder_ = std::move(folder); }
  void cancel() {
    pending_.clear();
    stack_reader_.cancel();
  }

  // Answers for ranks of this node. REQUIRES: an attempt has begun.
  void records(const control::RecordsRequest& request, ReplyDone done);
  void stacks(const control::StacksRequest& request, ReplyDone done);

  // "all_reduce #17 of group 'world' for 3.2 s": what a rank was in when it ended, or empty.
  std::string call_in_flight(int local_rank) const;
  pid_t pid(int local_rank) const { return processes_.pid(local_rank); }
  // How a rank that runs began to end; nullopt: it did not, as far as is known.
  std::optional<Departure> departure(int local_rank) const;
  // True while the rank's process is stopped to read its stacks.
  bool is_held(int local_rank) const { return stack_reader_.holds(processes_.pid(local_rank)); }

  // Reads the ranks' stacks early enough that SIGKILL comes when promised, however long that takes.
  void look_before_kill(const group::ReportStopping& stop, Duration grace);
  void end_look() { look_timer_.cancel(); }
  // The ranks that have not ended, with these stacks.
  std::vector<LeftRank> left_ranks() const;

 private:
  std::vector<int> local_ranks_of(const control::RankRanges& ranges) const;
  RankRing read_ring(int local_rank, size_t calls_max) const;
  std::optional<CallLine> pending_call(int local_rank, bool synchronous) const;
  void name_lock_holders(RankStacks& stacks) const;
  std::optional<EndedThread> ended_thread(int local_rank) const;
  void read_stacks(const std::vector<int>& local_ranks, StackLook look, Duration patience,
                   StackReader::Done done);

  // Samples the processes again.
  void look_again();

  struct PendingRead {
    std::vector<StackTarget> targets;
    std::map<size_t, TreeLook> trees;  // By the index of the target.
    StackLook look = StackLook::quiet;
    Duration patience{};
    StackReader::Done done;
  };

  const JobSeam& job_;
  WorkerProcesses& processes_;
  Rings& rings_;
  SiteNames site_names_;
  const Callbacks callbacks_;
  StackReader stack_reader_;
  std::string stack_folder_;
  std::vector<PendingRead> pending_;
  boost::asio::steady_timer look_again_timer_;
  boost::asio::steady_timer look_timer_;
  std::vector<RankStacks> last_look_;  // The stacks read before SIGKILL.
};

}  // namespace muster
