// Whether a signal is from the engine that started this job, which signals every process of it.
// Read from /proc at once, while the sender is still there; any thread. Slurm's is the only engine
// of that kind: orted, hydra and kubelet signal only what they started.
#pragma once

#include <sys/signalfd.h>

namespace muster {

// Sent by Slurm's daemon of the step. Where /proc hides the processes of other users (hidepid of
// proc(5)), any of root's that still runs counts as it in a Slurm job.
bool is_from_engine(const signalfd_siginfo& info);

}  // namespace muster
