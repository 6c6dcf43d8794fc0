// The processes of one node's workers and everything that they start: spawns, waits for, signals,
// kills and reaps them. The WorkerGroup machine makes the decisions. Runs on the control loop;
// blocks on procfs only. The calling process must be a child subreaper: then the job is exactly the
// tree below it, and one waitid that answers ECHILD proves that nothing is left.
//
// A stop signal goes to each live worker, or to the processes below it that handle the signal in
// its place (stop_receivers.h), or, if there are none, to its process group. Other processes below
// a live worker get none before it has ended: a checkpoint in progress may need them. Descendants
// without a live worker above them get the signal by the same rule. Late in the grace the rest get
// TERM. KILL goes to everything, last to helpers that clean up (shared_memory.h), which get no
// other signal.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/signalfd.h>

#include "agent/process/exit_status.h"
#include "agent/process/job_cgroup.h"
#include "agent/process/process_tree.h"
#include "agent/process/shared_memory.h"
#include "agent/process/spawn.h"

namespace muster {

struct WorkerExit {
  int local_rank = 0;
  pid_t pid = 0;
  ExitStatus status;
  Duration ran{0};
  long max_rss_kib = 0;  // The rusage of its wait.
  double cpu_s = 0;
  WorkerLimits limits{};
};

class WorkerProcesses {
 public:
  struct Callbacks {
    std::function<void(const WorkerExit&)> exited;
    std::function<void()> empty;  // Once after watch_empty(): no worker and no descendant is left.
    std::function<void(const signalfd_siginfo&)> signalled;  // This process got a signal of kHeard.
    // The process runs as another user and cannot be signalled. Once for each process.
    std::function<void(const ProcessEntry&)> refused;
    // Repeated after kill() while only processes that cannot be signalled are left.
    std::function<void()> kill_refused;
  };

  WorkerProcesses(boost::asio::io_context& io, Callbacks callbacks);

  // Forgets the workers of the previous attempt. REQUIRES: all of them are reaped.
  void begin_attempt(int workers);

  Result<pid_t> start(int local_rank, SpawnRequest request);

  // Signals each worker at most once in an attempt; not those with local ranks in `spared`, which
  // are about to end.
  void stop(int signal, const std::set<int>& spared = {});
  void stop_rest();  // Sends TERM to every process that this stop has not signalled.
  // Records that the processes alive at `when`, except those just started, have already had the
  // signal that stop() will be called for.
  void have_signal(std::chrono::steady_clock::time_point when);
  // False if no process of the job handles the signal: sending it a second time does no harm.
  bool may_handle(int signal) const;
  void kill();  // Repeats until nothing is left, which `empty` reports.
  bool kill_is_refused() const { return kill_is_refused_; }  // As of the last kill round.
  void watch_empty();
  void forward(int signal);
  bool forward_to(int local_rank, int signal);  // False if that worker is not running.
  void suspend();
  void resume();

  // Removes the cgroup, if there is one. For the exit path that runs no destructors.
  void release_cgroup() { cgroup_.reset(); }

  // All descendants, workers included, helpers not.
  std::vector<ProcessEntry> descendants() const { return descendants_of(getpid(), helpers_); }
  // The state of each worker now, by local rank. A worker whose descriptor or procfs entry shows
  // that it began to exit before our first signal ended of its own accord.
  std::vector<AtStop> look() const;
  pid_t pid(int local_rank) const { return workers_[static_cast<size_t>(local_rank)].pid; }

  // Pids of all processes seen below us in this attempt: these may hold device memory.
  std::set<pid_t> seen_pids() const;

  // Our own helper children are never signalled here, nor reaped before remove_helper().
  void add_helper(pid_t pid) { helpers_.insert(pid); }
  void remove_helper(pid_t pid);

 private:
  struct Worker {
    pid_t pid = 0;
    bool exited = true;
    bool has_signal = false;  // Set once the stop's signal has been sent to it.
    std::chrono::steady_clock::time_point started;
    std::unique_ptr<boost::asio::posix::stream_descriptor> end;
    std::unique_ptr<boost::asio::steady_timer> again;
  };

  void wait_for(int local_rank);
  void on_end(int local_rank, pid_t pid);
  void wait_for_signals();
  void on_signals();
  std::set<pid_t> live_workers_and_helpers() const;
  void reap_orphans();
  void signal_rest_soon();
  void signal_rest(const std::vector<ProcessEntry>& tree);
  void signal_orphan(const ProcessEntry& process);
  void stop_worker(const std::vector<ProcessEntry>& tree, const Worker& worker);
  void follow(const std::vector<ProcessEntry>& tree, const std::vector<pid_t>& receivers);
  std::vector<pid_t> signal_receivers(const std::vector<ProcessEntry>& tree, pid_t root);
  void send_once(const ProcessEntry& process, int signal);
  void kill_round();
  void check_empty();
  bool nothing_left() const;
  void send_to_group(const Worker& worker, int signal);
  SignalOutcome send(const ProcessEntry& process, int signal);
  void refuse(const ProcessEntry& process);

  boost::asio::io_context& io_;
  Callbacks callbacks_;
  boost::asio::posix::stream_descriptor signals_;  // open_signal_fd()
  boost::asio::steady_timer kill_timer_;
  std::unique_ptr<JobCgroup> cgroup_;
  std::vector<Worker> workers_;
  std::set<pid_t> helpers_;
  std::set<pid_t> abandoned_helpers_;  // Killed but not yet reaped; also in helpers_.
  SeenProcesses seen_;
  KillOrder kill_order_;
  std::set<std::pair<pid_t, uint64_t>> already_signalled_;  // Signalled by this stop.
  // A shell's trap may have passed the signal on to these, so they get none before stop_rest().
  std::set<std::pair<pid_t, uint64_t>> left_to_traps_;
  std::set<std::pair<pid_t, uint64_t>> refused_;  // Already reported as refused.
  std::optional<int> stop_signal_;                // Signal of the stop in progress.
  bool rest_pending_ = false;
  bool killing_ = false;
  bool kill_is_refused_ = false;
  bool watching_ = false;
};

}  // namespace muster
