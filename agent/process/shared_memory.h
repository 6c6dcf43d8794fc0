// What the processes of a job leave in /dev/shm. Most of it is removed by helpers of their own, as
// soon as the processes that they serve are gone: torch_shm_manager, and the resource trackers of
// Python's multiprocessing. They are killed last, and only if they have not ended by then. torch's
// files have the pid of their creator in their name: what is left of these is removed here.
//
// Blocks on procfs and /dev/shm only.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/process/process_tree.h"

namespace muster {

// Whether it is such a helper.
bool cleans_up(const ProcessEntry& process);

// Processes of the job, dead or alive, and the time in which each is known to have had its pid.
using ClockTime = std::chrono::system_clock::time_point;
struct PidHeld {
  ClockTime from;
  ClockTime to;
};
using SeenProcesses = std::map<pid_t, PidHeld>;
void add_seen(const std::vector<ProcessEntry>& tree, SeenProcesses& seen);

// In which order the processes of a tree are killed.
class KillOrder {
 public:
  // Those that are due now, without those that have ended.
  std::vector<ProcessEntry> due(const std::vector<ProcessEntry>& tree);
  bool spares() const { return spares_; }  // The last due() left helpers out.
  bool only_helpers() const { return alone_since_.has_value(); }

  // How long they may go on by themselves.
  static constexpr auto kCleanUp = std::chrono::seconds(1);

 private:
  bool spares_ = false;
  std::optional<std::chrono::steady_clock::time_point> alone_since_;
};

// Removes their torch_<pid>_* from /dev/shm, where it is certain that no other process made them.
void remove_shared_files(const SeenProcesses& seen);

// Its parts. The files in the folder that have the pid of one of the processes and were made while
// it had that, where no process has it now.
std::vector<std::string> files_of_dead(const SeenProcesses& seen, const std::string& folder);
// Whether all processes that can make files there have their pids in our PID namespace: it is the
// machine's, and no container has the same folder.
bool has_only_our_pids(const std::string& folder);

}  // namespace muster
