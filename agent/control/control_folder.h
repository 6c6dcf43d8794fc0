// Where running jobs can be found by the user who started them: a folder of that user's, 0700, with
// <pid>.sock (control_server.h) and <pid>.json for every job on this machine. It is
// $XDG_RUNTIME_DIR/muster, or /tmp/muster-UID where there is no such folder of ours, unless
// $MUSTER_RUN_DIR names another; one that is a link or another user's is never used, whoever made
// it first. What a killed job has left is recognised by asking: nobody accepts on its socket. These
// functions wait for the file system, so an agent calls them off its control loop.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/base/error.h"

namespace muster {

struct JobEntry {
  pid_t pid = 0;
  std::string id;
  std::string program;
  double started = 0;  // Seconds since 1970.
  std::string socket_path;

  friend bool operator==(const JobEntry&, const JobEntry&) = default;
};

// The two variables that say where the folder is.
struct ControlPlace {
  std::string run_dir;      // $MUSTER_RUN_DIR: this folder and no other. Empty: not set.
  std::string runtime_dir;  // $XDG_RUNTIME_DIR. Empty: not set.
};

// Best first. Pure.
std::vector<std::string> control_folders(const ControlPlace& place, uid_t uid);

// Makes the first folder that is or can be ours. Fails with ExitCode::environment.
Result<std::string> make_control_folder(const ControlPlace& place);

// Whether `path` is a real folder of ours that nobody else can enter; an owner's loose mode is
// mended.
Result<void> check_control_folder(const std::string& path);

std::string control_socket_path(const std::string& folder, pid_t pid);
std::string control_entry_path(const std::string& folder, pid_t pid);

// Written whole or not at all.
Result<void> write_job_entry(const std::string& folder, const JobEntry& entry);
void remove_job_entry(const std::string& folder, pid_t pid);

// The jobs that answer, by pid; the files of those that do not are removed.
std::vector<JobEntry> running_jobs(const ControlPlace& place);

// Connects, blocking but never for long. Returns a descriptor; fails with ExitCode::environment.
Result<int> connect_to_job(const std::string& socket_path);

}  // namespace muster
