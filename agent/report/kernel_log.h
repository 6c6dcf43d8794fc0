// Which processes the kernel's out-of-memory killer has killed, whose stack overflowed, and which
// faults the NVIDIA driver has seen, according to the kernel log. For kills it is the only source
// that names the processes: a cgroup's counter only counts them. The log uses the pids of the first
// pid namespace. It may be unreadable for a user (kernel.dmesg_restrict) or missing (in a
// container); then it is of no use. One thread at a time.
//
// The message of a kill is that of __oom_kill_process() in Linux, "Killed process 4711 (python3)
// total-vm:...". It follows the SIGKILL at once, in practice long before the process is reaped. The
// record before it names the victim's memory cgroup: "oom-kill:constraint=CONSTRAINT_MEMCG,...,
// task_memcg=/job,task=python3,pid=4711,uid=0". A process that is killed because it shares the
// victim's memory gets no message.
//
// The driver's message, "NVRM: Xid (PCI:0000:c1:00): 31, pid=4711, name=python3, ...", names no
// process, or whichever ran, where the GPU as a whole fails. x86 logs a fault that ends a process
// as "python3[4711]: segfault at 7ffc32bf4f0c ip ... sp 7ffc32bf4f00 error 6 ...", with the number
// of the thread. /dev/kmsg does not block and returns one record per read
// (Documentation/ABI/testing/dev-kmsg).
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

  // Only records from here on count.
  void mark();

  // Whether that process was killed; nullopt if the log cannot tell.
  std::optional<bool> oom_killed(pid_t pid);

  // All that were killed; may lack some.
  const std::vector<OomVictim>& oom_victims();

  // Whether the main thread of that process died of a fault beside its stack pointer.
  bool stack_overflowed(pid_t pid);

  // One that names that process, else one that need not be another's; of several the first of
  // failing hardware, or the first.
  std::optional<Xid> xid_of(pid_t pid);

 private:
  void read();
  void keep(Xid xid);
  void note_victim(std::string_view record);

  std::string path_;
  bool names_our_pids_ = false;
  std::string memory_cgroup_;  // muster's.
  pid_t next_victim_ = 0;      // That of the last record on a choice:
  bool next_is_own_ = false;   // it is in that cgroup.
  UniqueFd file_;
  std::vector<OomVictim> killed_;
  std::vector<pid_t> overflowed_;
  std::vector<Xid> xids_;  // The first few different ones.
  bool lost_ = false;      // Records were overwritten before they were read.
};

}  // namespace muster
