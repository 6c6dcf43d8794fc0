// What a rank does, from two looks at its process tree. Pure, but for look_at(): the
// simulator and tests make looks up. life_text.cc has the words.
//
//   state            the first that holds
//   gone             its process has ended
//   traced           a debugger is attached
//   stopped          by a signal, or its cgroup is frozen
//   running          the tree computes or moves data, or the waiting thread does more than poll
//   uninterruptible  a task waits in the kernel for a disk, a network file system or a driver
//   sleeping         a timer of a second or more will wake the waiting thread
//   blocked          nothing moves, and no timer will change that
//   unknown          /proc hides what decides
//
// The waiting thread is one: the main thread of the process that records or, while that waits for
// a child, of that child. Libraries keep threads that sleep for seconds and wake for ever
// (watchdogs, heartbeats, event loops), so the timers of other threads say nothing. What all tasks
// compute, read and write counts, from limits that such threads stay below.
//
// /proc does not show how long most time-outs are. Wake-ups tell: a thread that has none between
// two looks sleeps that long at least, and one that has many polls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <sys/types.h>

#include "agent/hang/system_call.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

enum class LifeState : uint8_t {
  gone,
  stopped,
  traced,
  uninterruptible,
  running,
  sleeping,  // A timer will wake it.
  blocked,
  unknown,
};

// What shows the state, where the other members of a Life leave that open.
enum class LifeSign : uint8_t {
  none,
  hidden_process,
  hidden_call,
  computes,    // `rate`: percent of a CPU.
  moves_data,  // `rate`: bytes a second.
  waits_for_cpu,
  wakes,       // From the call. Blocked: it polls, `rate` times a second.
  other_task,  // `task` is uninterruptible, not the waiting thread.
};

struct Task {
  pid_t id = 0;  // 0: none.
  std::string name{};
  bool is_thread = false;

  friend bool operator==(const Task&, const Task&) = default;
};

struct Life {
  LifeState state = LifeState::unknown;
  LifeSign sign = LifeSign::none;
  uint64_t rate = 0;
  std::optional<SystemCall> call{};  // That the waiting thread is in, if it says something.
  std::string target{};              // As LifeLook; "pipe:", "socket:" without its number.
  std::string wchan{};               // As LifeLook; uninterruptible.
  std::string thawing{};             // As LifeLook; stopped. Empty: by a signal.
  Task task{};                       // Not the root: the one that runs, or waits.

  friend bool operator==(const Life&, const Life&) = default;
};

// "blocked in read() of a pipe (descriptor 5)", "running: 99 % of a CPU"; empty: it was not looked
// at.
std::string describe(const Life& life);

// What a process has used so far, with its children that have ended and were reaped.
struct ProcessUse {
  uint64_t start_ticks = 0;  // Together with the pid, identifies a process.
  std::string name;
  Duration cpu{};
  uint64_t bytes = 0;  // Read and written.
};

struct LifeLook {
  enum class Presence : uint8_t { gone, hidden, visible };

  Instant at{};
  pid_t root = 0;
  Presence presence = Presence::hidden;  // All below is known only if it is visible.
  std::map<pid_t, ProcessUse> tree;      // With the root.

  // ---- the waiting thread
  pid_t process = 0;
  pid_t thread = 0;
  char state = '?';  // As in /proc/PID/stat.
  bool is_traced = false;
  std::string thawing;   // The command that thaws its cgroup; empty: that is not frozen.
  uint64_t wakeups = 0;  // Voluntary context switches.
  uint64_t bytes = 0;
  bool call_is_visible = false;
  std::optional<SystemCall> call;  // nullopt: it was not waiting, if that is visible.
  std::string target;              // Where the call's descriptor leads; empty: unknown.
  std::string wchan;               // The kernel function that it sleeps in; empty: unknown.

  // ---- other tasks of the tree
  // Those that have a CPU or want one, with their wake-ups; the waiting thread counts too.
  std::map<pid_t, uint64_t> runnable;
  Task uninterruptible;
};

// Two looks at one root, `before` first, any time apart: limits are rates.
Life life_of(const LifeLook& before, const LifeLook& after);

// Looks at a rank's process tree through /proc (life_look.cc). `root`: the worker. `recorder`: the
// process that records, if that is below it; 0: unknown.
//
// Reads stat, status, syscall, wchan, io, cgroup, children and links of descriptors, none of which
// waits for the process. Not cmdline, environ, maps and mem: these take its memory lock, and hang
// with a process that is stuck in the kernel. At most 64 processes and 512 threads of them are
// looked at. Any thread; the control loop may call it.
//
// Cost: 0.07 ms, and 4 us for each further thread; 11 us if the waiting thread does not wait
// for a descriptor.
LifeLook look_at(pid_t root, pid_t recorder = 0);

}  // namespace muster::hang
