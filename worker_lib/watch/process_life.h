// One life of a process, so that a later process with the same number is not taken for it: the
// kernel's boot, the PID namespace that the number belongs to, the number, and when it started.
// And: which processes are on one node. Reads of /proc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

struct ProcessLife {
  std::string boot;            // Of the kernel; the host's name where /proc does not tell.
  uint64_t pid_namespace = 0;  // Its number; 0 where /proc does not tell.
  int pid = 0;
  uint64_t started = 0;  // In ticks since the boot; 0 where /proc does not tell.

  std::string to_string() const;  // One word.
  static std::optional<ProcessLife> parse(std::string_view text);
  friend bool operator==(const ProcessLife&, const ProcessLife&) = default;
};

// Of a process of this node and PID namespace.
ProcessLife life_of_process(int pid);

// False: it is known to be over (the machine has started anew, or its process is gone). True: it
// goes on, or it is somewhere where we cannot look.
bool may_still_live(const ProcessLife& life);
// True: it is known to go on.
bool surely_lives(const ProcessLife& life);

enum class ProcessState : uint8_t { unknown, running, stopped, over };

// What the kernel says where we can look. Stopped: by a signal or a debugger.
ProcessState state_of(const ProcessLife& life);

// Whether a process of this namespace is on its way out: its descriptors may be closed already,
// and so others know of its end, while whoever waits for it does not yet.
bool is_exiting(int pid);

// Equal for processes that can share memory and reach each other's abstract Unix sockets: same
// kernel, same network namespace; same user namespace too, so that user ids mean the same.
std::string node_identity();

std::string own_host_name();

}  // namespace muster::worker
