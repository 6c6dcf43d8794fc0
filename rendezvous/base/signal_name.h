// Names of signals. glibc has these names only since version 2.32 (sigabbrev_np()), and muster runs
// with older ones.
#pragma once

#include <string>

namespace muster {

// "SIGTERM", "SIGRTMIN+3", "signal 77" for a number that has no name.
std::string signal_name(int signal);

}  // namespace muster
