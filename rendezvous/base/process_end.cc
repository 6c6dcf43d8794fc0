#include "rendezvous/base/process_end.h"

#include <cerrno>
#include <csignal>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "rendezvous/base/process_stat.h"
#include "rendezvous/base/quiet_thread.h"

namespace muster {
namespace {

constexpr int kLookEveryMs = 20;

// Writes to `to` once the process has ended; returns early if no reader is left.
void await_end(pid_t pid, uint64_t started, int to) {
  siginfo_t info{};
  int waited = 0;
  do {
    waited = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  } while (waited != 0 && errno == EINTR);
  pollfd unread{to, 0, 0};
  // waitid() fails with ECHILD for a process that is no child of ours: poll /proc instead.
  while (waited != 0 && started != 0 && start_ticks(stat_fields(pid)) == started) {
    if (poll(&unread, 1, kLookEveryMs) > 0) return;
  }
  [[maybe_unused]] const ssize_t told = write(to, "", 1);
}

}  // namespace

UniqueFd open_process_end(pid_t pid) {
  UniqueFd end(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (end || errno == ESRCH || is_out_of_descriptors(errno)) return end;
  const uint64_t started = start_ticks(stat_fields(pid));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return end;
  end.reset(ends[0]);
  UniqueFd to(ends[1]);
  try {
    quiet_thread([pid, started, to = std::move(to)] {
      await_end(pid, started, to.get());
    }).detach();
  } catch (const std::system_error& refused) {
    end.reset();
    errno = refused.code().value();
  }
  return end;
}

bool signal_by_end(const UniqueFd& end, pid_t pid, int signal) {
  if (syscall(SYS_pidfd_send_signal, end.get(), signal, nullptr, 0) == 0) return true;
  return errno != ESRCH && kill(pid, signal) == 0;
}

}  // namespace muster
