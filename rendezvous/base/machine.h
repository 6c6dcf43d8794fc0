// The identity of this machine: what processes compare to learn whether they run on one. Each call
// reads it anew; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// gethostname(2); "unknown host" if it has no name.
std::string own_hostname();

// The kernel's boot_id (random(4)), or the host name where /proc hides it.
std::string boot_identity();

// The inode of /proc/self/ns/KIND ("net", "pid", "user"; namespaces(7)); 0 if it cannot be read.
uint64_t own_namespace(const char* kind);

// "BOOT/NET": processes that agree on both share one kernel's network, and 127.0.0.1.
std::string machine_identity();

}  // namespace muster
