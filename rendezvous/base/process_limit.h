// Finds the limit on processes and threads behind an EAGAIN of fork() or of a thread's start:
// pids.max of a cgroup, or RLIMIT_NPROC.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

class ProcessLimits {
 public:
  explicit ProcessLimits(const std::filesystem::path& root = "/");

  // Records the kernel's count of refusals by cgroups, so that met() detects later ones.
  void snapshot() { refusals_before_ = refusals(); }

  // Returns "pids.max of /sys/fs/cgroup/pids/job is 14", "ulimit -u (RLIMIT_NPROC) is 14 for all
  // processes and threads of uid 4001", or "". `allowed`: the refused process's RLIMIT_NPROC.
  std::string met(uint64_t allowed) const;

 private:
  int64_t refusals() const;

  std::vector<std::filesystem::path> groups_;
  bool root_is_exempt_ = false;  // True unless uid 0 is the root of a user namespace.
  int64_t refusals_before_ = 0;
};

// The same for this process, right after an EAGAIN.
std::string process_limit_met();

// Returns "fork failed: Resource temporarily unavailable (pids.max of ... is 14...)": the limit or
// sandbox behind the error, if it may have one.
std::string call_failed(std::string_view call, int error);

}  // namespace muster
