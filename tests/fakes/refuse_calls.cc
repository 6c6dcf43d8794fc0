// refuse_calls ERRNO PROGRAM ARGS...: runs the program as on a kernel without pidfds (RHEL 8's) and
// in a sandbox that refuses what old seccomp profiles refuse. The calls fail with ERRNO, but clone3
// always with ENOSYS, which glibc's threads need. Waiting by pidfd fails with EINVAL, as before
// Linux 5.4. Before 5.2 clone(2) silently ignores CLONE_PIDFD, which no filter can imitate: here it
// kills the caller, so that nothing relies on it.
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

constexpr unsigned kFutexWaitv = 449;  // Debian 11's headers lack its name.

size_t argument(size_t index) {  // Its low half, on a little-endian machine.
  return offsetof(seccomp_data, args) + 8 * index;
}

sock_filter answer(unsigned action) {
  return BPF_STMT(BPF_RET | BPF_K, action);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const unsigned refused = SECCOMP_RET_ERRNO | static_cast<unsigned>(std::atoi(argv[1]));
  sock_filter filter[] = {
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      answer(SECCOMP_RET_ERRNO | ENOSYS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
      load(argument(0)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_PIDFD, 0, 1),
      answer(SECCOMP_RET_KILL_PROCESS),
      answer(SECCOMP_RET_ALLOW),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_waitid, 0, 4),
      load(argument(0)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, P_PIDFD, 0, 1),
      answer(SECCOMP_RET_ERRNO | EINVAL),
      answer(SECCOMP_RET_ALLOW),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kFutexWaitv, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_signalfd4, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_eventfd2, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
      answer(refused),
      answer(SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::perror("refuse_calls: seccomp");
    return 77;
  }
  execvp(argv[2], argv + 2);
  std::perror(argv[2]);
  return 127;
}
