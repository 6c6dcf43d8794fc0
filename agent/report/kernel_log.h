// Reads out-of-memory kills, stack overflows and GPU faults from the kernel log, the only source
// that names the killed processes: a cgroup only counts them. The log uses the pids of the first
// pid namespace, and may be unreadable (kernel.dmesg_restrict) or missing (in a container); then
// nothing is found. /dev/kmsg does not block and returns one record per read
// (Documentation/ABI/testing/dev-kmsg). One thread at a time.
//
// Linux's __oom_kill_process() logs "Killed process 4711 (python3) total-vm:..." right after the
// SIGKILL, in practice long before the process is reaped. The record before names the victim's
// memory cgroup: "oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/job,task=python3,pid=4711,
// uid=0". A process that is killed because it shares the victim's memory gets no message.
//
// The driver's "NVRM: Xid (PCI:0000:c1:00): 31, pid=4711, name=python3, ..." names no process, or
// whichever was running, if the whole GPU fails. x86 logs a fault that ends a process with the
// thread's id: "python3[4711]: segfault at 7ffc32bf4f0c ip ... sp 7ffc32bf4f00 error 6 ...".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/report/job_report.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

class KernelLog {
 public:
  explicit KernelLog(std::string path = "/dev/kmsg", const std::filesystem::path& root = "/");

  // Starts over: only later records count.
  void mark();

  // True if the process was killed; nullopt if the log cannot tell.
  std::optional<bool> oom_killed(pid_t pid);

  // Returns the killed processes; some may be missing.
  const std::vector<OomVictim>& oom_victims();

  // True if the process's main thread died of a fault near its stack pointer.
  bool stack_overflowed(pid_t pid);

  // Prefers an Xid that names the process, then failing hardware, then one without a process.
  std::optional<Xid> xid_of(pid_t pid);

 private:
  void read();
  void keep(Xid xid);
  void note_victim(std::string_view record);

  std::string path_;
  bool names_our_pids_ = false;
  std::string memory_cgroup_;  // muster's.
  pid_t next_victim_ = 0;      // Victim that the last "oom-kill:" record announced.
  bool next_is_own_ = false;   // True if that victim is in memory_cgroup_.
  UniqueFd file_;
  std::vector<OomVictim> killed_;
  std::vector<pid_t> overflowed_;
  std::vector<Xid> xids_;  // The first 64 distinct ones.
  bool lost_ = false;      // Records were overwritten before they were read.
};

}  // namespace muster
