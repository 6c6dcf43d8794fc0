#include "agent/hang/system_call.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include <fmt/format.h>
#include <sys/syscall.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

constexpr WaitsFor kDescriptor = WaitsFor::descriptor;
constexpr WaitsFor kThread = WaitsFor::thread;
constexpr WaitsFor kChild = WaitsFor::child;
constexpr WaitsFor kOther = WaitsFor::other;
constexpr WaitsFor kWatched = WaitsFor::watched;

enum class TimerKind : uint8_t { none, milliseconds, address, always, futex, uring };
constexpr TimerKind kMilliseconds = TimerKind::milliseconds;
constexpr TimerKind kAddress = TimerKind::address;
constexpr TimerKind kAlways = TimerKind::always;

struct KnownCall {
  int number;
  const char* name;
  WaitsFor waits_for = WaitsFor::other;
  TimerKind timer = TimerKind::none;
  size_t argument = 0;  // The timer's index.
};

// Calls that can wait for a peer, a lock, a timer, a device or a network file system.
constexpr KnownCall kCalls[] = {
    {SYS_read, "read", kDescriptor},
    {SYS_readv, "readv", kDescriptor},
    {SYS_pread64, "pread64", kDescriptor},
    {SYS_preadv, "preadv", kDescriptor},
    {SYS_preadv2, "preadv2", kDescriptor},
    {SYS_write, "write", kDescriptor},
    {SYS_writev, "writev", kDescriptor},
    {SYS_pwrite64, "pwrite64", kDescriptor},
    {SYS_pwritev, "pwritev", kDescriptor},
    {SYS_pwritev2, "pwritev2", kDescriptor},
    {SYS_recvfrom, "recvfrom", kDescriptor},
    {SYS_recvmsg, "recvmsg", kDescriptor},
    {SYS_recvmmsg, "recvmmsg", kDescriptor, kAddress, 4},
    {SYS_sendto, "sendto", kDescriptor},
    {SYS_sendmsg, "sendmsg", kDescriptor},
    {SYS_sendmmsg, "sendmmsg", kDescriptor},
    {SYS_accept, "accept", kDescriptor},
    {SYS_accept4, "accept4", kDescriptor},
    {SYS_connect, "connect", kDescriptor},
    {SYS_sendfile, "sendfile", kDescriptor},
    {SYS_splice, "splice", kDescriptor},
    {SYS_copy_file_range, "copy_file_range", kDescriptor},
    {SYS_ioctl, "ioctl", kDescriptor},
    {SYS_flock, "flock", kDescriptor},
    {SYS_fcntl, "fcntl", kDescriptor},
    {SYS_fsync, "fsync", kDescriptor},
    {SYS_fdatasync, "fdatasync", kDescriptor},
    {SYS_sync_file_range, "sync_file_range", kDescriptor},
    {SYS_syncfs, "syncfs", kDescriptor},
    {SYS_sync, "sync"},
    {SYS_msync, "msync"},
    {SYS_ftruncate, "ftruncate", kDescriptor},
    {SYS_fallocate, "fallocate", kDescriptor},
    {SYS_getdents64, "getdents64", kDescriptor},
    {SYS_close, "close", kDescriptor},
    {SYS_openat, "openat"},
    {SYS_newfstatat, "newfstatat"},
    {SYS_statx, "statx"},
    {SYS_statfs, "statfs"},
    {SYS_faccessat, "faccessat"},
    {SYS_readlinkat, "readlinkat"},
    {SYS_mkdirat, "mkdirat"},
    {SYS_unlinkat, "unlinkat"},
    {SYS_renameat2, "renameat2"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_madvise, "madvise"},
    {SYS_mprotect, "mprotect"},
    {SYS_clone, "clone"},
#ifdef SYS_clone3
    {SYS_clone3, "clone3"},
#endif
    {SYS_execve, "execve"},
    {SYS_futex, "futex", kThread, TimerKind::futex, 3},
#ifdef SYS_futex_waitv
    {SYS_futex_waitv, "futex_waitv", kThread, kAddress, 3},
#endif
    {SYS_wait4, "wait4", kChild},
    {SYS_waitid, "waitid", kChild},
    {SYS_ppoll, "ppoll", kOther, kAddress, 2},
    {SYS_pselect6, "pselect6", kOther, kAddress, 4},
    {SYS_epoll_pwait, "epoll_pwait", kWatched, kMilliseconds, 3},
#ifdef SYS_epoll_pwait2
    {SYS_epoll_pwait2, "epoll_pwait2", kWatched, kAddress, 3},
#endif
    {SYS_nanosleep, "nanosleep", kOther, kAlways},
    {SYS_clock_nanosleep, "clock_nanosleep", kOther, kAlways},
    // A call with a timeout becomes this after SIGSTOP and SIGCONT.
    {SYS_restart_syscall, "restart_syscall", kOther, kAlways},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait", kOther, kAddress, 2},
    {SYS_msgrcv, "msgrcv"},
    {SYS_msgsnd, "msgsnd"},
    {SYS_semop, "semop"},
    {SYS_semtimedop, "semtimedop", kOther, kAddress, 3},
    {SYS_mq_timedreceive, "mq_timedreceive", kDescriptor, kAddress, 4},
    {SYS_mq_timedsend, "mq_timedsend", kDescriptor, kAddress, 4},
    {SYS_io_getevents, "io_getevents", kOther, kAddress, 4},
    {SYS_io_pgetevents, "io_pgetevents", kOther, kAddress, 4},
    {SYS_io_uring_enter, "io_uring_enter", kOther, TimerKind::uring},
#ifdef SYS_poll  // Older calls, which newer machines lack.
    {SYS_open, "open"},
    {SYS_stat, "stat"},
    {SYS_lstat, "lstat"},
    {SYS_access, "access"},
    {SYS_mkdir, "mkdir"},
    {SYS_unlink, "unlink"},
    {SYS_rename, "rename"},
    {SYS_fork, "fork"},
    {SYS_vfork, "vfork"},
    {SYS_poll, "poll", kOther, kMilliseconds, 2},
    {SYS_select, "select", kOther, kAddress, 4},
    {SYS_epoll_wait, "epoll_wait", kWatched, kMilliseconds, 3},
    {SYS_pause, "pause"},
#endif
};

using Arguments = std::array<uint64_t, 6>;

// FUTEX_WAKE has no timer, whatever the register holds.
bool futex_has_timer(const Arguments& arguments) {
  constexpr int kWait = 0, kLockPi = 6, kWaitBitset = 9, kWaitRequeuePi = 11, kLockPi2 = 13;
  constexpr int kCommand = 0x7f;  // Without the flags FUTEX_PRIVATE and FUTEX_CLOCK_REALTIME.
  return is_one_of(static_cast<int>(arguments[1]) & kCommand,
                   {kWait, kLockPi, kWaitBitset, kWaitRequeuePi, kLockPi2}) &&
         arguments[3] != 0;
}

void set_timer(SystemCall& call, const KnownCall& known, const Arguments& arguments) {
  const uint64_t value = arguments[known.argument];
  switch (known.timer) {
    case TimerKind::none:
      break;
    case TimerKind::milliseconds:
      call.has_timer = static_cast<int>(value) >= 0;
      if (call.has_timer) call.timeout = std::chrono::milliseconds(static_cast<int>(value));
      break;
    case TimerKind::address:
      call.has_timer = value != 0;
      break;
    case TimerKind::always:
      call.has_timer = true;
      break;
    case TimerKind::futex:
      call.has_timer = futex_has_timer(arguments);
      break;
    case TimerKind::uring: {
      constexpr uint64_t kExtendedArgument = 8;  // IORING_ENTER_EXT_ARG: may point to a timeout.
      call.has_timer = (arguments[3] & kExtendedArgument) != 0;
      break;
    }
  }
}

pid_t child_of(int number, const Arguments& arguments) {
  if (number == SYS_wait4) return std::max(static_cast<pid_t>(arguments[0]), 0);
  constexpr uint64_t kPid = 1;  // P_PID
  return arguments[0] == kPid ? static_cast<pid_t>(arguments[1]) : 0;
}

SystemCall call_of(const KnownCall& known, const Arguments& arguments) {
  SystemCall call{.is_known = true, .name = known.name, .waits_for = known.waits_for};
  if (is_one_of(known.waits_for, {kDescriptor, kWatched}))
    call.descriptor = static_cast<int>(arguments[0]);
  if (known.waits_for == kChild) call.child = child_of(known.number, arguments);
  set_timer(call, known, arguments);
  // A select(1, ...) means descriptor 0: a prompt of Python's.
  const bool is_select = call.name.ends_with("select") || call.name == "pselect6";
  if (is_select && arguments[0] == 1) {
    call.waits_for = kDescriptor;
    call.descriptor = 0;
  }
  return call;
}

std::optional<uint64_t> parse_argument(std::string_view word) {
  return word.starts_with("0x") ? whole_number<uint64_t>(word.substr(2), 16) : std::nullopt;
}

// "a pipe", "a socket", "the terminal /dev/pts/0", a path.
std::string target_text(std::string_view target) {
  if (target.starts_with("pipe:")) return "a pipe";
  if (target == "socket:" || target.starts_with("socket:[")) return "a socket";
  if (target.starts_with("socket:")) return "a socket to " + clean_line(target.substr(7));
  if (is_terminal(target)) return fmt::format("the terminal {}", clean_line(target));
  return clean_line(target);  // "anon_inode:[eventfd]", "/data/train.bin".
}

}  // namespace

std::optional<SystemCall> parse_system_call(std::string_view text) {
  const std::vector<std::string_view> words = split(trim(text), ' ');
  const std::optional<int> number = whole_number<int>(words[0]);
  if (!number) return std::nullopt;
  if (*number < 0) return SystemCall{.is_known = true};
  Arguments arguments{};
  if (words.size() <= arguments.size()) return std::nullopt;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::optional<uint64_t> argument = parse_argument(words[i + 1]);
    if (!argument) return std::nullopt;
    arguments[i] = *argument;
  }
  const auto* const known = std::ranges::find(kCalls, *number, &KnownCall::number);
  if (known != std::end(kCalls)) return call_of(*known, arguments);
  return SystemCall{.name = fmt::format("system call {}", *number)};
}

bool is_terminal(std::string_view target) {
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty");
}

bool reads(const SystemCall& call) {
  return call.waits_for == kWatched ||
         is_one_of<std::string_view>(
             call.name, {"read", "readv", "recvfrom", "recvmsg", "recvmmsg", "select", "pselect6"});
}

bool polls(const SystemCall& call) {
  return is_one_of<std::string_view>(call.name, {"poll", "ppoll"});
}

std::string describe(const SystemCall& call, std::string_view target) {
  if (call.name.empty()) return "a page fault";
  if (!call.is_known) return call.name;
  std::string text = call.name + "()";
  const bool is_told = is_terminal(target) || target.starts_with("socket:");
  if (call.waits_for == kWatched ? is_told : call.descriptor >= 0) {
    if (target.empty()) {
      text += fmt::format(" of descriptor {}", call.descriptor);
    } else {
      text += fmt::format(" of {} (descriptor {})", target_text(target), call.descriptor);
    }
  }
  if (call.waits_for == WaitsFor::thread) text += " (a lock, or another thread)";
  if (call.waits_for == WaitsFor::child) text += " (a child)";
  if (call.timeout) text += " with a time-out of " + duration_text(*call.timeout);
  return text;
}

}  // namespace muster::hang
