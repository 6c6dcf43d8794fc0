// Starts one rank with clone(CLONE_VM | CLONE_VFORK), since posix_spawn(3) cannot set a
// parent-death signal before the program runs.
#include <cerrno>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/process_end.h"
#include "rendezvous/base/process_limit.h"
#include "worker_lib/spawn/spawn.h"

namespace muster::worker {
namespace {

constexpr size_t kRankStackBytes = 64 * 1024;

// Prepared before the clone: until execve the child may call only what is async-signal-safe, and it
// shares this memory with its suspended parent.
struct RankPlan {
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  const sigset_t* mask = nullptr;
  pid_t parent = 0;
  const char* failed_step = nullptr;  // Written by the child.
  int failed_errno = 0;
};

int fail_rank_step(RankPlan* plan, const char* step) {
  plan->failed_step = step;
  plan->failed_errno = errno;
  return 127;
}

// Resets handlers: the parent's must not run here, in its memory, once signals are unblocked.
// Ignored signals stay ignored, as across execve(2).
void drop_handlers() {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now{};
    if (sigaction(number, nullptr, &now) != 0) continue;
    if (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
      sigaction(number, &standard, nullptr);
  }
}

__attribute__((no_sanitize("address", "thread"))) int rank_main(void* argument) {
  auto* plan = static_cast<RankPlan*>(argument);
  drop_handlers();
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_rank_step(plan, "prctl");
  if (getppid() != plan->parent) _exit(127);  // The parent died before the line above.
  sigprocmask(SIG_SETMASK, plan->mask, nullptr);
  execve("/proc/self/exe", plan->argv, plan->envp);
  return fail_rank_step(plan, "execve of /proc/self/exe");
}

std::vector<char*> rank_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings)
    pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Outcome<StartedRank> start_rank(const std::vector<std::string>& arguments,
                                const std::vector<std::string>& environment) {
  const std::vector<char*> argv = rank_strings(arguments);
  const std::vector<char*> envp = rank_strings(environment);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  RankPlan plan{argv.data(), envp.data(), &before, getpid(), nullptr, 0};
  const auto stack = std::make_unique_for_overwrite<char[]>(kRankStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid =
      clone(rank_main, stack.get() + kRankStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  const int clone_errno = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    return failed(ErrorCode::system, "cannot start a rank: " + call_failed("clone", clone_errno));
  }
  UniqueFd end;
  if (plan.failed_step == nullptr && !(end = open_process_end(pid))) {
    fail_rank_step(&plan, "pidfd_open");
    kill(pid, SIGKILL);
  }
  if (plan.failed_step == nullptr) return StartedRank{pid, std::move(end)};
  waitpid(pid, nullptr, 0);
  return failed(ErrorCode::system,
                "cannot start a rank: " + call_failed(plan.failed_step, plan.failed_errno));
}

}  // namespace muster::worker
