// A process beside the workers that gets what they get: its parent is theirs, its command line
// looks like theirs, and its session and its name are its own. A signal that it gets was sent to
// every process of the job: by an engine's daemon, by systemd to all of a cgroup
// (KillMode=control-group), or by `pkill -f train.py`. It does not get what only muster gets, as
// with `pkill muster`, `sbatch --signal=B:USR1@60` or a plain kill.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/process/signal_sender.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

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
