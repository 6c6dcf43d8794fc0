// Finds what the processes of a rank wait for: samples each twice, as the detection of hangs does
// (agent/hang/life.h), and looks at what that leaves open: how a child ended, who holds a file lock
// or the other end of a pipe. Reads only what waits for no process. The agent looks itself: Yama
// lets only an ancestor see the calls of a worker's children. Costs some 0.1 ms a process for each
// sample.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/hang/life.h"
#include "agent/hang/stacks.h"
#include "agent/process/process_tree.h"
#include "agent/report/job_report.h"

namespace muster {

// What is known of a rank's processes apart from their frames.
struct TreeFindings {
  std::vector<ProcessStack> processes;  // As in RankStacks.
  int left_out = 0;
  std::set<pid_t> may_be_idle;  // Wait for work unless their frames say otherwise.

  // The most telling children, one of those that do the same.
  std::vector<pid_t> worth_reading(size_t most) const;
  // Adds the frames of the processes that `stacks` has, if any, and then sets them.
  void add_to(RankStacks& stacks) const;
};

class TreeLook {
 public:
  static constexpr size_t kProcessesMax = 64;

  // Takes the first sample of the process and those below it. `all`: descendants_of() the agent.
  // `left`: how many processes may still be looked at.
  TreeLook(pid_t process, const std::vector<ProcessEntry>& all, size_t& left);

  // Takes the second one: 50 ms after the first at least, or a process that polls seems to run.
  // `memory`: what is known of out-of-memory kills.
  TreeFindings finish(const HostEvidence& memory) const;

 private:
  std::vector<ProcessEntry> tree_;  // The process itself, then those below it.
  std::vector<hang::LifeLook> looks_;
  int left_out_ = 0;
};

// The process that holds the file lock for which `waiter` waits, in the text of /proc/locks
// (proc_locks(5)). 0: none, or unknown, as that of an open file description (F_OFD_SETLKW).
pid_t lock_holder(std::string_view locks, pid_t waiter);

}  // namespace muster
