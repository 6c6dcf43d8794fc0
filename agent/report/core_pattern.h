// Derives a core file's place from kernel.core_pattern, see core(5). Pure: returns a glob(3)
// pattern, because some of what the kernel fills in (time, uid in a namespace) is unknown.
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
  std::string cwd;          // The process's; base of a relative pattern.
  bool append_pid = false;  // kernel.core_uses_pid
};

// nullopt for a pipe to a handler, an empty pattern, and a relative one if cwd is unknown.
std::optional<std::string> core_glob(std::string_view core_pattern, const CoreFacts& facts);

// How to find a core that a handler took: "coredumpctl info 4711". Empty if no handler takes it.
std::string core_handler_hint(std::string_view core_pattern, pid_t pid);

}  // namespace muster
