// The words of two programs that print the stacks of Python threads: py-spy, which reads them out
// of a process, and CPython's faulthandler, by which a process prints its own. Neither's words are
// trusted, and what does not follow their form is left out. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "agent/hang/stacks.h"

namespace muster {

// What `py-spy dump --json` prints; nullopt: it is something else.
std::optional<std::vector<ThreadStack>> stacks_of_py_spy(std::string_view text);

// What CPython's faulthandler prints: "Thread 0x... (most recent call first):" and its frames, or
// of one thread "Stack (most recent call first):". That one, and the current thread, is `thread`;
// the others are not known by number. Empty: there is none.
std::vector<ThreadStack> stacks_of_faulthandler(std::string_view text, pid_t thread);

}  // namespace muster
