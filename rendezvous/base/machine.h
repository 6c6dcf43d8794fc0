// The identity of this machine, by which processes find out whether they share one. Nothing is
// cached; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// gethostname(2), or "unknown host" without a name.
std::string own_hostname();

// The kernel's boot_id (random(4)), or "host:" and the host name if /proc hides it.
std::string boot_identity();

// The inode of /proc/self/ns/KIND ("net", "pid", "user"; namespaces(7)); 0 if it cannot be read.
uint64_t own_namespace(const char* kind);

// "BOOT/NET": processes with the same one share a kernel's network and 127.0.0.1.
std::string machine_identity();

}  // namespace muster
