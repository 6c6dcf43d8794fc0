// Looks at the machine right after a worker died. The only part of agent/report with I/O: small
// reads of /proc and cgroup files plus a statvfs or two. Those of /proc, cgroup and /dev/shm do not
// block; `log_dir` and a core folder may lie on a network disk that hangs, so hand those in only
// off the control loop. All roots can be injected for tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/report/job_report.h"
#include "agent/report/kernel_log.h"

namespace muster {

// Counts the kernel's out-of-memory kills since a moment: in the memory cgroup that this process
// is in (v2 memory.events, v1 memory.oom_control) and on the whole machine (/proc/vmstat).
class OomWatch {
 public:
  explicit OomWatch(const std::string& proc_root = "/proc",
                    const std::string& cgroup_root = "/sys/fs/cgroup");

  // Starts counting anew. Called at the start of every attempt (and by the constructor).
  void snapshot();

  // Fills oom_kills, machine_oom_kills and memory_limit_bytes.
  void fill(HostEvidence& evidence) const;

 private:
  std::string vmstat_path_;
  std::string counter_path_;  // Empty: this kernel or container shows none.
  std::string limit_path_;
  int64_t kills_before_ = 0;
  int64_t machine_kills_before_ = 0;
};

struct EvidenceRequest {
  pid_t pid = 0;
  int signal = 0;  // That killed it; 0: none. Only a signal makes us look for a core.
  bool core_dumped = false;
  std::string comm;                 // Its name as the kernel knew it (15 bytes); empty: unknown.
  std::string cwd;                  // Of the worker; where a relative core pattern points.
  std::string log_dir;              // Empty: do not look at its disk.
  KernelLog* kernel_log = nullptr;  // Asked about a SIGKILL.
  std::string proc_root = "/proc";
  std::string shm_dir = "/dev/shm";
};

// Everything but what OomWatch counts.
HostEvidence gather_evidence(const EvidenceRequest& request);

// State and kernel function of a process; none if it is gone.
std::optional<StuckProcess> look_at_process(pid_t pid, const std::string& proc_root = "/proc");

}  // namespace muster
