// The front is the process that the user started: it has the pid that shells and schedulers see,
// does terminal job control, turns signals into messages for the agent, and exits last. It forks
// the agent, makes no decisions and keeps no state of the job, so that little can go wrong here:
// however the agent dies, the front kills everything that the agent left behind.
//
//   signal at the front             what happens
//   TERM INT QUIT HUP, and those    the first: the agent stops the job with grace; a second TERM,
//     of --signals-to-handle        (2 s later or more), INT or QUIT: the agent kills the job
//   HUP when inherited as ignored   nothing (nohup)
//   TSTP                            the workers are stopped, then the front, not the agent; CONT
//                                   resumes both
//   WINCH                           the workers' pseudo-terminals get the new size
//   USR1 USR2, other forwardable    passed on once to each worker; does not stop the job
#pragma once

#include <functional>
#include <vector>

#include "agent/job/agent.h"

namespace muster {

// Forks the agent, which runs `agent_main` and exits with its result, and supervises it. Returns
// the exit code of the program. TERM, INT, QUIT and HUP always end the job, whether in
// `stop_signals` or not. REQUIRES: the calling process has one thread.
int run_front(const std::vector<int>& stop_signals,
              const std::function<int(AgentContext)>& agent_main);

// True if `signal` is passed on to the workers: catchable, not one of `stop_signals`, not part of
// job control, and not raised by a fault of the receiver.
bool is_forwardable(int signal, const std::vector<int>& stop_signals);

}  // namespace muster
