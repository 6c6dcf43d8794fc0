// What /proc/PID/stat says of a process (proc(5)): the fields that tell one life of a process from
// a later one of the same number, and from its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// From the third, the state, on; the program's name before it may contain anything. Empty: the
// process is gone, or hidden.
std::vector<std::string> stat_fields(int pid);

// Gone, or a zombie.
bool is_over(const std::vector<std::string>& fields);

// In ticks since the boot; 0: the process is over.
uint64_t start_ticks(const std::vector<std::string>& fields);

}  // namespace muster
