// A cgroup for the job, if one can be created: one write to its cgroup.kill ends every process of
// the job, whatever they fork meanwhile (cgroups(7), Linux 5.14). Requires cgroup v2 and that our
// own cgroup's folder is delegated to us: it belongs to this (non-root) user, or has the delegation
// mark that systemd sets. Otherwise the process tree alone is used.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

class JobCgroup {
 public:
  // Creates a cgroup below the calling process's; nullptr if that is not possible.
  static std::unique_ptr<JobCgroup> create();

  // The path of the cgroup of an agent with this pid; nullopt if none can be created. The front
  // uses it to clean up after an agent that was killed.
  static std::optional<std::string> path_for(pid_t pid);

  // Removes the folder if it is empty.
  ~JobCgroup();
  JobCgroup(JobCgroup&&) = delete;

  // A descriptor for SpawnRequest: a child that writes "0" to it enters the cgroup.
  int procs_fd() const { return procs_.get(); }

  void kill() const;

 private:
  explicit JobCgroup(std::string path);

  std::string path_;
  UniqueFd procs_;
  UniqueFd kill_;
};

}  // namespace muster
