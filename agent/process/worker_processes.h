// The processes of one node's workers, and everything that they start: spawning, waiting by pidfd,
// signalling, killing, reaping. It only does; the WorkerGroup machine decides. Runs on the control
// loop and never blocks but on procfs.
//
// The calling process must be a child subreaper: then the job is exactly the tree below it, and
// "nothing is left" is one waitid that answers ECHILD.
//
// Who gets a stop signal: each live worker's process group, and descendants that no live worker
// stands above. What a live worker has put into a session of its own is the worker's business until
// it has ended: a checkpoint under way may need its helper. KILL goes to everything.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/exit_status.h"
#include "agent/process/job_cgroup.h"
#include "agent/process/process_tree.h"
#include "agent/process/spawn.h"

namespace muster {

struct WorkerExit {
  int local_rank = 0;
  pid_t pid = 0;
  ExitStatus status;
  Duration ran{0};
  long max_rss_kib = 0;  // From the rusage of its wait.
  double cpu_s = 0;
};

class WorkerProcesses {
 public:
  struct Callbacks {
    std::function<void(const WorkerExit&)> exited;
    std::function<void()> empty;  // After watch_empty(), once: no worker and no descendant is left.
    std::function<void(int)> stop_signal;  // TERM, INT or QUIT was sent to this very process.
    // It runs as another user and may not be signalled. Once for each process.
    std::function<void(const ProcessEntry&)> refused;
    // After kill(), again and again: nothing else is left.
    std::function<void()> kill_refused;
  };

  WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks);

  // Forgets the workers of the attempt before. REQUIRES: all of them are reaped.
  void begin_attempt(int workers);

  Result<pid_t> start(int local_rank, SpawnRequest request);

  void stop(int signal);
  void kill();  // Again and again until nothing is left; `empty` says so if it is watched for.
  bool kill_is_refused() const { return kill_is_refused_; }  // At the last look.
  void watch_empty();
  void forward(int signal);
  // To one worker; false if it is not running.
  bool forward_to(int local_rank, int signal);
  void suspend();
  void resume();

  // Gives the cgroup up, where there is one. For the way out that runs no destructors.
  void release_cgroup() { cgroup_.reset(); }

  // What is left below us, workers included.
  std::vector<ProcessEntry> descendants() const { return descendants_of(getpid(), helpers_); }
  // How each worker stands now, by local rank. What the pidfd or procfs shows of a process whose
  // end has begun before any signal of ours is its own doing.
  std::vector<AtStop> look() const;
  pid_t pid(int local_rank) const { return workers_[static_cast<size_t>(local_rank)].pid; }

  // Pids of every process that was seen below us in this attempt: those who may hold device memory.
  const std::set<pid_t>& seen_pids() const { return seen_pids_; }

  // Our own helper children are neither signalled nor, before remove_helper, reaped here.
  void add_helper(pid_t pid) { helpers_.insert(pid); }
  void remove_helper(pid_t pid);

 private:
  struct Worker {
    pid_t pid = 0;
    bool exited = true;
    std::chrono::steady_clock::time_point started;
    std::unique_ptr<boost::asio::posix::stream_descriptor> pidfd;
    std::unique_ptr<boost::asio::steady_timer> again;
  };

  void wait_for(int local_rank);
  void on_pidfd_readable(int local_rank);
  void wait_for_signals();
  void on_signals();
  void reap_orphans();
  void look_again_later(int local_rank);
  void signal_rest_soon();
  void signal_rest();
  void kill_round();
  void check_empty();
  bool nothing_left() const;
  void send_to_group(const Worker& worker, int signal);
  SignalOutcome send(const ProcessEntry& process, int signal);
  void refuse(const ProcessEntry& process);

  boost::asio::io_context& io_;
  Callbacks callbacks_;
  boost::asio::posix::stream_descriptor signals_;  // A signalfd.
  boost::asio::steady_timer kill_timer_;
  std::unique_ptr<JobCgroup> cgroup_;
  std::vector<Worker> workers_;
  std::set<pid_t> helpers_;
  std::set<pid_t> abandoned_helpers_;  // Killed, not yet reaped by anybody; also in helpers_.
  std::set<pid_t> seen_pids_;
  std::set<std::pair<pid_t, uint64_t>>
      already_signalled_;                         // In this stop, outside the workers' groups.
  std::set<std::pair<pid_t, uint64_t>> refused_;  // Who was said to run as another user.
  std::optional<int> stop_signal_;                // Of the stop under way.
  bool rest_pending_ = false;
  bool killing_ = false;
  bool kill_is_refused_ = false;
  bool watching_ = false;
};

}  // namespace muster
