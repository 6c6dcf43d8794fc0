// Who sent a signal: it says whether the workers may have been sent it as well. Read from /proc at
// once, while the sender is still there; any thread.
#pragma once

#include <cstdint>

#include <sys/signalfd.h>

namespace muster {

enum class Sender : uint32_t {
  kernel,   // A key press, a hangup of the terminal: to its foreground group alone.
  process,  // kill(2).
  manager,  // systemd, which stops all processes of a cgroup unless KillMode says otherwise.
  // The engine that started this job and signals every process of it: Slurm's daemon of the step.
  // orted, hydra and kubelet signal only what they started. Where /proc hides the processes of
  // other users (hidepid of proc(5)), any of root's that still runs counts as it in a Slurm job.
  engine,
};

Sender sender_of(const signalfd_siginfo& info);

}  // namespace muster
