// A process that has ended, for tests of what earlier jobs left behind: killed and reaped before it
// is returned, so that a later process with its pid is another one.
#pragma once

#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "worker_lib/watch/process_life.h"

namespace muster::worker {

inline ProcessLife ended_process() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const ProcessLife life = life_of_process(child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return life;
}

}  // namespace muster::worker
