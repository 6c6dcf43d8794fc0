// The folder in which a user's running jobs can be found: that user's, 0700, with <pid>.sock
// (control_server.h) and <pid>.json for every job on this machine. It is $MUSTER_RUN_DIR if set, or
// muster-UID in that if others can enter it (as /tmp); else $XDG_RUNTIME_DIR/muster, or
// /tmp/muster-UID if the runtime folder is missing or not ours. A folder that is a link, belongs to
// another user or can be entered by one is never used, even if it existed first, and never changed.
// Files of a killed job are recognised by connecting: no process accepts on its socket. These
// functions wait for the file system, so an agent calls them off its control loop.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/control/control_protocol.h"
#include "rendezvous/base/error.h"

namespace muster {

struct ControlPlace {
  std::string run_dir;      // $MUSTER_RUN_DIR, which excludes the other. Empty: not set.
  std::string runtime_dir;  // $XDG_RUNTIME_DIR. Empty: not set.
};

// The candidate folders, best first. Pure.
std::vector<std::string> control_folders(const ControlPlace& place, uid_t uid);

// Creates the first folder that is or can be ours. Fails with ExitCode::environment.
Result<std::string> make_control_folder(const ControlPlace& place);

// Fails unless `path` is a real folder of ours that no other user can enter.
Result<void> check_control_folder(const std::string& path);

std::string control_socket_path(const std::string& folder, pid_t pid);
std::string control_entry_path(const std::string& folder, pid_t pid);
// The folder of a job's hooks (agent/process/worker_hooks.h).
std::string control_hook_path(const std::string& folder, pid_t pid);

// Writes <pid>.json completely or not at all.
Result<void> write_job_entry(const std::string& folder, const JobEntry& entry);
// Removes a job's entry, its socket and its hooks.
void remove_job_entry(const std::string& folder, pid_t pid);

// The jobs that answer, by pid; removes the files of those that do not.
std::vector<JobEntry> running_jobs(const ControlPlace& place);

struct HiddenJob {
  pid_t pid = 0;         // The front's.
  bool foreign = false;  // Another user's.
  std::string why;       // Includes what to do.
};
// The jobs on this machine that are not in `listed`, and why not; with a `run_dir` only those that
// use the same. Blocks on procfs, too.
std::vector<HiddenJob> hidden_jobs(const ControlPlace& place, std::span<const JobEntry> listed);

// Connects; may block, but only briefly. Returns a descriptor; fails with ExitCode::environment.
Result<int> connect_to_job(const std::string& socket_path);

}  // namespace muster
