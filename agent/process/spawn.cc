#include "agent/process/spawn.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/base/process_end.h"
#include "rendezvous/base/process_limit.h"

namespace muster {
namespace {

constexpr size_t kChildStackBytes = 64 * 1024;

// Everything that the child needs, prepared before clone: between clone and execve it may call only
// async-signal-safe functions, and it shares this memory with the suspended parent.
struct ChildPlan {
  const SpawnRequest& request;
  const char* executable;
  char* const* argv;
  char* const* envp;
  int source_fds[3];
  const cpu_set_t* cpus;  // nullptr: inherited.
  size_t cpus_bytes;
  const rlimit* descriptor_limit;  // nullptr: inherited.
  pid_t parent;

  // Written by the child when a step fails; read by the parent after the child has gone.
  const char* failed_step = nullptr;
  int failed_errno = 0;
};

// True if the launcher changes the signal's disposition for itself, which must not leak into the
// program. Other signals that the user ignores on purpose (trap '' USR1) stay ignored, as across
// exec and in torchrun's workers.
bool must_be_default(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT || signal == SIGHUP ||
         signal == SIGCHLD || signal == SIGPIPE || signal == SIGXFSZ;
}

void reset_signal_handlers(bool keep_hangup_ignored) {
  struct sigaction dfl{};
  dfl.sa_handler = SIG_DFL;
  for (int sig = 1; sig < NSIG; ++sig) {
    if (sig == SIGHUP && keep_hangup_ignored) continue;
    struct sigaction now{};
    if (sigaction(sig, nullptr, &now) != 0 || now.sa_handler == SIG_DFL) continue;
    if (now.sa_handler == SIG_IGN && !must_be_default(sig)) continue;
    sigaction(sig, &dfl, nullptr);
  }
}

// Moves the sources onto 0, 1, 2. Sources within that range are moved out of the way first, so that
// any permutation works; a source already in place only loses its close-on-exec flag.
bool place_standard_descriptors(int (&source)[3]) {
  for (int target = 0; target < 3; ++target) {
    if (source[target] == target || source[target] > 2) continue;
    source[target] = fcntl(source[target], F_DUPFD_CLOEXEC, 3);
    if (source[target] < 0) return false;
  }
  for (int target = 0; target < 3; ++target) {
    if (source[target] == target) {
      // A launcher started with a closed standard stream has nothing to clear here: EBADF is fine.
      fcntl(target, F_SETFD, 0);
    } else if (dup2(source[target], target) < 0) {
      return false;
    }
  }
  return true;
}

int fail_step(ChildPlan* plan, const char* step) {
  plan->failed_step = step;
  plan->failed_errno = errno;
  return 127;
}

// Runs on the child's own stack in the parent's memory. The order matters: handlers first (none of
// the parent's may run here), the session before the parent-death signal, the parent check after
// it, the descriptors last, the signal mask just before execve.
__attribute__((no_sanitize("address"))) int child_main(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  reset_signal_handlers(plan->request.keep_hangup_ignored);
  struct sigaction ignored{};
  ignored.sa_handler = SIG_IGN;
  for (const int signal : plan->request.ignored_signals)
    sigaction(signal, &ignored, nullptr);
  if (setsid() < 0) return fail_step(plan, "setsid");
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_step(plan, "prctl(PR_SET_PDEATHSIG)");
  if (getppid() != plan->parent)
    _exit(127);  // The parent died before the prctl: no process waits for the result.
  // Best effort: without the cgroup, the process tree still finds every process.
  const int cgroup = plan->request.cgroup_procs_fd;
  if (cgroup >= 0 && write(cgroup, "0", 1) < 0) errno = 0;
  if (plan->cpus != nullptr && sched_setaffinity(0, plan->cpus_bytes, plan->cpus) != 0) {
    return fail_step(plan, "sched_setaffinity");
  }
  if (plan->descriptor_limit != nullptr && setrlimit(RLIMIT_NOFILE, plan->descriptor_limit) != 0) {
    return fail_step(plan, "setrlimit(RLIMIT_NOFILE)");
  }
  if (!place_standard_descriptors(plan->source_fds)) return fail_step(plan, "dup2");
  // Our own descriptors are close-on-exec already, but inherited ones may not be.
  close_descriptors(3, ~0U, CLOSE_RANGE_CLOEXEC);
  const int kept = plan->request.kept_fd;
  if (kept >= 0 && fcntl(kept, F_SETFD, 0) != 0) return fail_step(plan, "fcntl(F_SETFD)");
  // Yama lets only ancestors read a process's memory and stack, and our helpers are not ancestors
  // (Documentation/admin-guide/LSM/Yama.rst). Without Yama this fails with EINVAL.
  prctl(PR_SET_PTRACER, plan->parent, 0, 0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(plan->executable, plan->argv, plan->envp);
  return fail_step(plan, "execve");
}

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& s : strings)
    pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// A mask with `cpus` set; empty if there are none.
std::vector<cpu_set_t> cpu_mask(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  std::vector<cpu_set_t> mask(static_cast<size_t>(std::ranges::max(cpus)) / CPU_SETSIZE + 1);
  for (int cpu : cpus)
    CPU_SET_S(static_cast<size_t>(cpu), mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

Error describe_failure(const ChildPlan& plan) {
  const int e = plan.failed_errno;
  const std::string& program = plan.request.executable;
  if (std::strcmp(plan.failed_step, "execve") != 0) {
    return {ExitCode::environment,
            fmt::format("cannot start {}: {}", program, call_failed(plan.failed_step, e))};
  }
  const auto refused = [&](ExitCode code, std::string_view why) {
    return Error{code, fmt::format("cannot execute {}: {}", program, why)};
  };
  switch (e) {
    case ENOENT:
    case ENOTDIR:
      return refused(ExitCode::not_found,
                     "the file, or the interpreter that it names, does not exist");
    case ENOEXEC:
      return refused(ExitCode::cannot_execute,
                     "not a program for this machine and no `#!` line (give it one, or start it "
                     "through its interpreter)");
    case EACCES:
      return refused(ExitCode::cannot_execute, "permission denied (chmod +x, or a noexec mount)");
    case E2BIG:
      return refused(ExitCode::environment,
                     "arguments and environment are too large together (see `getconf ARG_MAX`)");
    default:
      return refused(ExitCode::cannot_execute, std::strerror(e));
  }
}

}  // namespace

Result<SpawnedProcess> spawn(const SpawnRequest& request) {
  const std::vector<char*> argv = c_strings(request.argv);
  const std::vector<char*> envp = c_strings(request.environment);
  const std::vector<cpu_set_t> cpus = cpu_mask(request.cpus);
  rlimit limit{};
  if (request.descriptor_limit) {
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = *request.descriptor_limit;
  }

  ChildPlan plan{
      .request = request,
      .executable = request.executable.c_str(),
      .argv = argv.data(),
      .envp = envp.data(),
      .source_fds = {request.stdin_fd, request.stdout_fd, request.stderr_fd},
      .cpus = cpus.empty() ? nullptr : cpus.data(),
      .cpus_bytes = cpus.size() * sizeof(cpu_set_t),
      .descriptor_limit = request.descriptor_limit ? &limit : nullptr,
      .parent = getpid(),
  };

  // Every signal is blocked so that no handler of ours runs in the child, which shares our memory.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto stack = std::make_unique_for_overwrite<char[]>(kChildStackBytes);
  const pid_t pid =
      clone(child_main, stack.get() + kChildStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  if (pid < 0) fail_step(&plan, "clone");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  UniqueFd end;
  if (plan.failed_step == nullptr && !(end = open_process_end(pid))) {
    fail_step(&plan, "pidfd_open");
    kill(pid, SIGKILL);
  }
  if (plan.failed_step == nullptr) return SpawnedProcess{pid, std::move(end)};
  if (pid >= 0) waitpid(pid, nullptr, 0);
  return tl::unexpected<Error>(describe_failure(plan));
}

// Reads the list from /proc if close_range(2) is missing (Linux before 5.9, old seccomp profiles):
// the limit of descriptors may be a billion, too many to try.
void close_descriptors(unsigned first, unsigned last, unsigned flags) {
  if (syscall(SYS_close_range, first, last, flags) == 0) return;
  const int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(dirent64) char entries[4096];
  for (long size = 0; (size = syscall(SYS_getdents64, list, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < size;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const auto fd = static_cast<unsigned>(std::strtoul(entry->d_name, nullptr, 10));
      if (fd < first || fd > last || fd == static_cast<unsigned>(list)) continue;
      if (flags == 0) close(static_cast<int>(fd));
      if (flags != 0) fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
    }
  }
  close(list);
}

Environment current_environment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    result.try_emplace(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  return result;
}

}  // namespace muster
