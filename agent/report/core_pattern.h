// Where core(5) puts the core file of a crashed process, derived from kernel.core_pattern. Pure:
// the result is a pattern for glob(3), because some of what the kernel fills in (the time, the uid
// inside a namespace) is unknown here.
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
  std::string cwd;          // Of the process; a relative pattern is relative to it.
  bool append_pid = false;  // kernel.core_uses_pid
};

// nullopt for a pipe to a handler, for an empty pattern, and for a relative one if cwd is unknown.
std::optional<std::string> core_glob(std::string_view core_pattern, const CoreFacts& facts);

// How to find a core that a handler took, "coredumpctl info 4711"; empty if that is not a pipe.
std::string core_handler_hint(std::string_view core_pattern, pid_t pid);

}  // namespace muster
