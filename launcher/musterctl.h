// musterctl: shows the state and the workers' output of this user's running jobs on this machine,
// and sends them signals. It finds the jobs in a folder (control_folder.h), connects to one of them
// over its socket (control_protocol.h), and keeps nothing open afterwards.
#pragma once

namespace muster {

// Returns the exit code: 0, 1 if a job is missing or refuses, 2 for wrong usage.
int run_musterctl(int argc, char** argv);

}  // namespace muster
