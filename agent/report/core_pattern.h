// Where core(5) puts the core file of a crashed process, worked out from kernel.core_pattern. Pure:
// the result is a pattern for glob(3), because some of what the kernel fills in (the time, the uid
// inside a namespace) is not known to us.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace muster {

struct CoreFacts {
  pid_t pid = 0;
  int signal = 0;
  std::string comm;         // Empty: unknown.
  std::string hostname;     // Empty: unknown.
  std::string cwd;          // Of the process; a relative pattern counts from there.
  bool append_pid = false;  // kernel.core_uses_pid
};

// None for a pipe to a handler, for the empty pattern, and for a relative one if cwd is unknown.
std::optional<std::string> core_glob(std::string_view core_pattern, const CoreFacts& facts);

// The command that leads to a core taken by a handler, "coredumpctl info 4711"; empty if the
// pattern is not a pipe.
std::string core_handler_hint(std::string_view core_pattern, pid_t pid);

}  // namespace muster
