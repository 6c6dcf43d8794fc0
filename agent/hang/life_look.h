// Looks at a rank's process tree through /proc, for life.h.
//
// Reads stat, status, syscall, wchan, io, cgroup, children and links of descriptors, none of which
// waits for the process. Not cmdline, environ, maps and mem: these take its memory lock, and hang
// with a process that is stuck in the kernel. At most 64 processes and 512 threads of them are
// looked at. Any thread; the control loop may call it.
//
// Cost: 0.07 ms, and 4 us for each further thread; 11 us if the waiting thread does not wait
// for a descriptor.
#pragma once

#include <sys/types.h>

#include "agent/hang/life.h"

namespace muster::hang {

// `root`: the worker. `recorder`: the process that records, if that is below it; 0: unknown.
LifeLook look_at(pid_t root, pid_t recorder = 0);

}  // namespace muster::hang
