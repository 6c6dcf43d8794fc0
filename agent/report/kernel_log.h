// Whom the kernel's out-of-memory killer has ended, by the kernel's own log: the one witness that
// names processes. A cgroup's counter only says that somebody was. The log names them as the first
// pid namespace numbers them, and may be closed to a user (kernel.dmesg_restrict) or not be there
// (a container): then it is of no help. One thread at a time.
//
// The words are those of __oom_kill_process() in Linux, "Killed process 4711 (python3)
// total-vm:...". They follow the SIGKILL at once, in practice long before the process is reaped;
// another process that shares its memory is killed without them. /dev/kmsg does not block and gives
// one record per read (Documentation/ABI/testing/dev-kmsg).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

class KernelLog {
 public:
  explicit KernelLog(std::string path = "/dev/kmsg", const std::string& proc_root = "/proc");

  // What comes from here on counts.
  void mark();

  // Whether that process is among them; none if the log cannot tell.
  std::optional<bool> oom_killed(pid_t pid);

 private:
  void read();

  std::string path_;
  bool names_our_pids_ = false;
  UniqueFd file_;
  std::vector<pid_t> killed_;
  bool lost_ = false;  // Records were overwritten before they were read.
};

}  // namespace muster
