// Runs a part of a test in a forked child: for what belongs to a whole process, such as its limits
// and descriptors, and would change the tests that follow.
#pragma once

#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {

// Returns the child's exit code, which is what `work` returns; -1: a signal ended it.
inline int exit_code_of_child(const std::function<int()>& work) {
  const pid_t pid = fork();
  if (pid == 0) _exit(work());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace muster::test
