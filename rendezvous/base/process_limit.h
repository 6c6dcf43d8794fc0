// Which limit on processes and threads is in the way where fork() or the start of a thread says
// EAGAIN: pids.max of a cgroup, or RLIMIT_NPROC.
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

  // From here on a refusal by a cgroup is remembered by its kernel's count of them.
  void snapshot();

  // A phrase: "pids.max of /sys/fs/cgroup/pids/job is 14", "ulimit -u (RLIMIT_NPROC) is 14 for all
  // processes and threads of uid 4001". Empty: neither limits this user's processes. `allowed`: the
  // RLIMIT_NPROC of the process that was refused.
  std::string met(uint64_t allowed) const;

 private:
  int64_t refusals() const;

  std::vector<std::filesystem::path> groups_;
  bool root_is_exempt_ = false;  // Not the root of a user namespace.
  int64_t refusals_before_ = 0;
};

// For an EAGAIN of this moment.
std::string process_limit_met();

// "fork failed: Resource temporarily unavailable (pids.max of ... is 14)", with the limit or the
// sandbox that is in the way, if the error is of that kind.
std::string call_failed(std::string_view call, int error);

}  // namespace muster
