#include "agent/process/signal_fd.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/base/quiet_thread.h"

namespace muster {
namespace {

void pass_on(const sigset_t& signals, int to) {
  siginfo_t info{};
  for (;;) {
    if (sigwaitinfo(&signals, &info) < 0) continue;  // EINTR
    const signalfd_siginfo record = signalfd_info(info);
    if (write(to, &record, sizeof record) == sizeof record) continue;
    kill(getpid(), info.si_signo);  // The pipe is closed: leave the signal to the next reader.
    return;
  }
}

}  // namespace

UniqueFd open_signal_fd(const sigset_t& signals, int flags) {
  UniqueFd from(signalfd(-1, &signals, SFD_CLOEXEC | flags));
  int ends[2];
  if (from || is_out_of_descriptors(errno) || pipe2(ends, O_CLOEXEC) != 0) return from;
  from.reset(ends[0]);
  UniqueFd to(ends[1]);
  if ((flags & SFD_NONBLOCK) != 0) fcntl(from.get(), F_SETFL, O_NONBLOCK);
  try {
    quiet_thread([signals, to = std::move(to)] { pass_on(signals, to.get()); }).detach();
  } catch (const std::system_error& refused) {
    from.reset();
    errno = refused.code().value();
  }
  return from;
}

signalfd_siginfo signalfd_info(const siginfo_t& info) {
  signalfd_siginfo record{};
  record.ssi_signo = static_cast<uint32_t>(info.si_signo);
  record.ssi_code = info.si_code;
  record.ssi_pid = static_cast<uint32_t>(info.si_pid);
  record.ssi_uid = info.si_uid;
  record.ssi_status = info.si_status;
  return record;
}

}  // namespace muster
