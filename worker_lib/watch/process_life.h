// Identifies one life of a process, so that a later process with the same PID is not mistaken for
// it: the kernel's boot, the PID namespace, the PID, and the start time. Also says which processes
// are on one node. Reads /proc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

struct ProcessLife {
  std::string boot;            // Of the kernel; the host's name if /proc does not tell.
  uint64_t pid_namespace = 0;  // Its number; 0 if /proc does not tell.
  int pid = 0;
  uint64_t started = 0;  // In ticks since the boot; 0 if /proc does not tell.

  std::string to_string() const;  // One word.
  static std::optional<ProcessLife> parse(std::string_view text);
  friend bool operator==(const ProcessLife&, const ProcessLife&) = default;
};

// Of a process of this node and PID namespace.
ProcessLife life_of_process(int pid);

// False: the process is known to be gone. True: it lives, or it is not visible from here (another
// machine, boot or PID namespace).
bool may_still_live(const ProcessLife& life);
// True: it is known to live.
bool surely_lives(const ProcessLife& life);

enum class ProcessState : uint8_t { unknown, running, stopped, over };

// What the kernel says; unknown: it is not visible from here. Stopped: by a signal or a debugger.
ProcessState state_of(const ProcessLife& life);

// Whether a process of this namespace is exiting: its descriptors may be closed already, so that
// its peers know, while its parent cannot reap it yet.
bool is_exiting(int pid);

// Equal for processes that can share memory and reach each other's abstract Unix sockets: same
// kernel, same network namespace; same user namespace too, so that user ids mean the same.
std::string node_identity();

}  // namespace muster::worker
