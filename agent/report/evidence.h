// Inspects the machine right after a worker died, with small reads of /proc and cgroup files and
// statvfs(). In agent/report, only this and kernel_log.h do I/O. Reads of /proc, cgroup and
// /dev/shm do not block, but `log_dir` and a core folder may be on a network disk that hangs: pass
// those only outside the control loop. Tests can inject all roots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "agent/process/process_tree.h"
#include "agent/report/job_report.h"
#include "agent/report/kernel_log.h"

namespace muster {

// Counts the kernel's out-of-memory kills from a given moment: in the memory cgroup of this process
// (v2 memory.events, v1 memory.oom_control) and on the whole machine (/proc/vmstat).
class OomWatch {
 public:
  explicit OomWatch(const std::filesystem::path& root = "/");

  // Restarts the count. Called at the start of every attempt (and by the constructor).
  void snapshot();

  // Fills oom_kills, machine_oom_kills and memory_limit_bytes.
  void fill(HostEvidence& evidence) const;

 private:
  std::filesystem::path vmstat_path_;
  std::filesystem::path counter_path_;  // Empty: this kernel or container has none.
  std::filesystem::path limit_path_;
  int64_t kills_before_ = 0;
  int64_t machine_kills_before_ = 0;
};

struct EvidenceRequest {
  pid_t pid = 0;
  int signal = 0;  // The signal that killed it; 0: none. A core is looked for only after a signal.
  bool core_dumped = false;
  std::string comm;     // Its name in the kernel (15 bytes); empty: unknown.
  std::string cwd;      // The worker's; base of a relative core pattern.
  std::string log_dir;  // Empty: do not check its disk.
  KernelLog* kernel_log = nullptr;
  std::string proc_root = "/proc";
  std::string shm_dir = "/dev/shm";
};

// Gathers what the kernel log, /proc, /dev/shm and the disk of the logs show.
GatheredEvidence gather_evidence(const EvidenceRequest& request);

// Adds the kernel function that the process sleeps in.
StuckProcess stuck_process(const ProcessEntry& process, const std::string& proc_root = "/proc");

}  // namespace muster
