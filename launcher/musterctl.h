// musterctl: asks the running jobs of this user on this machine how they are, shows what their
// workers have written, and sends them signals. It finds them in a folder (control_folder.h), talks
// to one over its socket (control_protocol.h), and keeps nothing open afterwards.
#pragma once

namespace muster {

// Returns the exit code: 0, 1 where a job is not there or refuses, 2 for wrong usage.
int run_musterctl(int argc, char** argv);

}  // namespace muster
