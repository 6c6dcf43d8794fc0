// A process beside the workers that gets what they get: its parent is theirs, and so may be its
// command line; its session and its name are its own. A signal that it gets was sent to all of the
// job: by an engine's daemon, by systemd to all of a cgroup (KillMode=control-group), or by
// `pkill -f train.py`. It does not get what only muster gets, as with `pkill muster`,
// `sbatch --signal=B:USR1@60` or a plain kill.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/signalfd.h>
#include <sys/types.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

// Who sent a signal: it says whether the workers may have been sent it as well. Read from /proc at
// once, while the sender is still there; any thread.
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

class SignalWitness {
 public:
  struct Seen {  // Goes through a pipe.
    int signal = 0;
    Sender sender = Sender::process;
    std::chrono::steady_clock::time_point when;
  };

  // Forks it, for the signals that are blocked now; `looks` is its command line. Without a process,
  // or a pipe, nothing is ever seen.
  explicit SignalWitness(const std::vector<std::string>& looks);
  SignalWitness(const SignalWitness&) = delete;
  SignalWitness& operator=(const SignalWitness&) = delete;
  ~SignalWitness();  // Waits for its end.

  pid_t pid() const { return pid_; }
  int fd() const { return seen_.get(); }  // Readable when next() has something. -1: there is none.
  std::optional<Seen> next();             // Never waits.

 private:
  UniqueFd seen_;
  pid_t pid_ = -1;
};

}  // namespace muster
