// A process of our own that nobody means who signals muster: its session and its name are others.
// A signal that it gets was sent to every process of the job: by an engine's daemon, or by systemd
// to all of a cgroup (KillMode=control-group). It does not get what only muster gets, as with
// `sbatch --signal=B:USR1@60` or a plain kill.
#pragma once

#include <chrono>
#include <optional>

#include <signal.h>

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

  // Forks it. `signals` are blocked. Without a process, or a pipe, nothing is ever seen.
  explicit SignalWitness(const sigset_t& signals);
  SignalWitness(const SignalWitness&) = delete;
  SignalWitness& operator=(const SignalWitness&) = delete;
  ~SignalWitness();  // Waits for its end.

  // Returns its pid, or -1.
  pid_t end();

  int fd() const { return seen_.get(); }  // Readable when next() has something. -1: there is none.
  std::optional<Seen> next();             // Never waits.

 private:
  UniqueFd seen_;
  pid_t pid_ = -1;
};

}  // namespace muster
