// How a process ended, as the kernel reports it, and its description. A plain value, made from the
// result of waitid or waitpid.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

struct ExitStatus {
  enum class Kind { exited, signaled };

  Kind kind = Kind::exited;
  int value = 0;  // The exit code (0..255), or the number of the signal.
  bool core_dumped = false;

  static ExitStatus exited(int code) { return {Kind::exited, code, false}; }
  static ExitStatus signaled(int signal, bool core = false) {
    return {Kind::signaled, signal, core};
  }

  bool success() const { return kind == Kind::exited && value == 0; }
  bool killed_by(int signal) const { return kind == Kind::signaled && value == signal; }

  // What a shell would show as $?: the exit code, or 128 + n for signal n.
  int code() const { return kind == Kind::exited ? value : 128 + value; }
  // The signal that killed it, or 0.
  int signal() const { return kind == Kind::signaled ? value : 0; }
  // As in Python and torchrun: the exit code, or -n for signal n.
  int signed_code() const { return kind == Kind::exited ? value : -value; }
  static ExitStatus from_signed_code(int code, bool core = false) {
    return code >= 0 ? exited(code) : signaled(-code, core);
  }

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

// The state of a worker just before the first signal of a stop on its node.
enum class AtStop : uint8_t {
  unknown,  // /proc is hidden, or there was no stop.
  running,
  exiting,  // Its end had begun: it frees memory, dumps core, or has SIGKILL pending.
  ended,
};

// A worker's resource limits when it ended (getrlimit(2)).
struct WorkerLimits {
  static constexpr uint64_t kNone = ~uint64_t{0};  // RLIM_INFINITY, or unknown.

  uint64_t cpu_s = kNone;  // The hard limit, at which the kernel sends SIGKILL.
  uint64_t stack_bytes = kNone;
  uint64_t processes = kNone;
};

// Converts waitid(2)'s. REQUIRES: child_code is CLD_EXITED, CLD_KILLED or CLD_DUMPED.
ExitStatus exit_status_from_siginfo(int child_code, int child_status);
ExitStatus exit_status_from_wait(int wait_status);  // waitpid(2)'s.

// "exited with 3", "killed by SIGTERM", "killed by SIGSEGV (core dumped)".
std::string describe(const ExitStatus& status);

}  // namespace muster
