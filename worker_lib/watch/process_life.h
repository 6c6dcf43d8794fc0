// Identifies one life of a process, so that a later process with the same PID is not mistaken for
// it: the kernel's boot, the PID namespace, the PID, and the start time. Also determines which
// processes are on one node. Reads /proc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

struct ProcessLife {
  std::string boot;            // Boot id of the kernel; the host's name if unknown.
  uint64_t pid_namespace = 0;  // 0 if unknown.
  int pid = 0;
  uint64_t started = 0;  // Ticks since the boot; 0 if unknown.

  std::string to_string() const;  // One word.
  static std::optional<ProcessLife> parse(std::string_view text);
  friend bool operator==(const ProcessLife&, const ProcessLife&) = default;
};

// Reads the life of a process of this node and PID namespace.
ProcessLife life_of_process(int pid);

// True unless it is known to be gone: also if it is not visible here (other machine, boot or
// namespace).
bool may_still_live(const ProcessLife& life);
// True if it is known to live.
bool surely_lives(const ProcessLife& life);

enum class ProcessState : uint8_t { unknown, running, stopped, over };

// Returns the kernel's view; unknown: not visible from here; stopped: by a signal or a debugger.
ProcessState state_of(const ProcessLife& life);

// True if a process is exiting: its peers may notice that before its parent can reap it.
bool is_exiting(int pid);

// Equal for processes that can share memory and reach each other's abstract Unix sockets: same
// kernel and network namespace; same user namespace too, so that user ids mean the same.
std::string node_identity();

}  // namespace muster::worker
