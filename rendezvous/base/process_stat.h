// Reads /proc/PID/stat (proc(5)), to tell a process from a later one with the same pid and to
// detect its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// Returns the fields from the third, the state, on; the program's name before it may contain any
// byte. Empty if the process is gone or hidden.
std::vector<std::string> stat_fields(int pid);

// True if it is gone or a zombie.
bool is_over(const std::vector<std::string>& fields);

// Returns the start time in ticks since boot; 0 if the process is over.
uint64_t start_ticks(const std::vector<std::string>& fields);

}  // namespace muster
