// Removes what the processes of a job leave in /dev/shm. The job's own helpers (torch_shm_manager,
// the resource trackers of Python's multiprocessing) remove most of it once the processes that they
// serve are gone, so they are killed last, if they have not ended by then. The names of torch's
// files contain the creator's pid: what is left of these is removed here. Blocks on procfs and
// /dev/shm only.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/process/process_tree.h"

namespace muster {

// True for such a helper.
bool cleans_up(const ProcessEntry& process);

// The time in which each process of the job, dead or alive, is known to have had its pid.
using ClockTime = std::chrono::sys_time<std::chrono::nanoseconds>;
struct PidHeld {
  ClockTime from;
  ClockTime to;
};
using SeenProcesses = std::map<pid_t, PidHeld>;
void add_seen(const std::vector<ProcessEntry>& tree, SeenProcesses& seen);

// The order in which the processes of a tree are killed: helpers last.
class KillOrder {
 public:
  // The live processes to kill now.
  std::vector<ProcessEntry> due(const std::vector<ProcessEntry>& tree);
  bool spares() const { return spares_; }  // True if the last due() left helpers out.
  bool only_helpers() const { return alone_since_.has_value(); }

  // Grace for the helpers once they are alone.
  static constexpr auto kCleanUp = std::chrono::seconds(1);

 private:
  bool spares_ = false;
  std::optional<std::chrono::steady_clock::time_point> alone_since_;
};

// Removes the torch_<pid>_* files of dead processes from /dev/shm, if it is certain that no other
// process made them. Consists of the two functions below.
void remove_shared_files(const SeenProcesses& seen);

// The torch_<pid>_* files in the folder made while one of the processes had that pid, which no
// process has now.
std::vector<std::string> files_of_dead(const SeenProcesses& seen, const std::string& folder);
// True if all processes that can make files there have their pids in our PID namespace: ours is the
// machine's first, and no container has the same folder.
bool has_only_our_pids(const std::string& folder);

}  // namespace muster
