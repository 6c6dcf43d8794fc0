// A process beside the workers that gets the signals that they get. It shares their parent and may
// show their command line, but has its own session and name. A signal that reaches it was sent to
// the whole job: by an engine's daemon, by systemd to a cgroup (KillMode=control-group), or by
// `pkill -f train.py`. Signals for muster alone do not reach it: `pkill muster`,
// `sbatch --signal=B:USR1@60`, a plain kill.
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

// The sender of a signal, which tells whether the workers may have got it too. Read from /proc
// while the sender still exists; any thread.
enum class Sender : uint32_t {
  kernel,   // A key press or a hangup of the terminal: only its foreground group gets it.
  process,  // kill(2).
  manager,  // systemd, which stops all processes of a cgroup unless KillMode says otherwise.
  // Slurm's step daemon, which signals every process of the job that it started; orted, hydra and
  // kubelet signal only their own children. If /proc hides the processes of other users (hidepid of
  // proc(5)), any live process of root's counts as the daemon in a Slurm job.
  engine,
};

Sender sender_of(const signalfd_siginfo& info);

class SignalWitness {
 public:
  struct Seen {  // Sent through a pipe as raw bytes.
    int signal = 0;
    Sender sender = Sender::process;
    std::chrono::steady_clock::time_point when;
  };

  // Forks the process, which waits for the signals that are blocked now; `looks` is its command
  // line. If there is no process or no pipe, it never sees a signal.
  explicit SignalWitness(const std::vector<std::string>& looks);
  SignalWitness(SignalWitness&&) = delete;
  ~SignalWitness();  // Kills and reaps the process.

  pid_t pid() const { return pid_; }
  int fd() const { return seen_.get(); }  // Readable when next() has a signal; -1: no process.
  std::optional<Seen> next();             // Never waits.
  // True if the process was sent the signal and has not run since.
  bool was_sent(int signal) const;

 private:
  UniqueFd seen_;
  pid_t pid_ = -1;
};

}  // namespace muster
