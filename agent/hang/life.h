// The process state of a rank, from two samples of its process tree. Pure, except for look_at():
// the simulator and tests make samples up.
//
//   state            the first that holds
//   gone             its process has ended
//   traced           a debugger is attached
//   stopped          by a signal, or its cgroup is frozen
//   running          the tree computes or moves data, or the waiting thread does more than poll
//   uninterruptible  a task waits in the kernel for a disk, a network file system or a driver
//   prompting        the waiting thread reads a terminal, or the worker its standard input
//   sleeping         a timer of a second or more will wake the waiting thread
//   asking           it waits for an answer from outside of the tree, or shorter timers wake it
//                    again and again, as one that looks for a file
//   blocked          nothing moves, and no timer will change that
//   unknown          /proc hides what decides
//
// The waiting thread is the main thread of the process that records or, while that waits for a
// child or for a process of the tree at the other end of a pipe or socket, of that process. Timers
// of other threads are ignored: libraries keep threads that sleep for seconds and wake forever
// (watchdogs, heartbeats, event loops). A thread that waits for Python's GIL asks for it 200 times
// a second: it is blocked unless the thread that holds it runs. CPU time and bytes of all tasks
// count, above limits that such threads stay below.
//
// /proc does not show how long most timeouts are, but wake-ups do: a thread with none between two
// samples sleeps at least that long, and one with many polls.
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
  asking,
  prompting,
};

// The evidence, if the rest of a Life leaves it open.
enum class LifeSign : uint8_t {
  none,
  hidden_process,
  hidden_call,
  computes,    // `rate`: percent of a CPU.
  moves_data,  // `rate`: bytes a second.
  waits_for_cpu,
  wakes,       // Woken in the call. Asking, or blocked by the GIL: `rate` times a second.
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
  std::optional<SystemCall> call{};  // The waiting thread's, if it decides the state.
  std::string target{};              // LifeLook::target, with the other end for the number of a
                                     // pipe or socket: "pipe:", "socket:10.0.0.5:443".
  std::string wchan{};               // LifeLook::wchan, if uninterruptible.
  std::string thawing{};             // LifeLook::thawing, if stopped. Empty: by a signal.
  Task task{};                       // The one that runs or waits, unless it is the root.

  friend bool operator==(const Life&, const Life&) = default;
};

// "blocked in read() of a pipe (descriptor 5)", "running: 99 % of a CPU"; empty: not sampled.
std::string describe(const Life& life);

// Use of resources by a process and its reaped children so far.
struct ProcessUse {
  uint64_t start_ticks = 0;  // Together with the pid, identifies a process.
  std::string name;
  Duration cpu{};
  uint64_t bytes = 0;  // Read and written.
};

// One sample of a process tree.
struct LifeLook {
  enum class Presence : uint8_t { gone, hidden, visible };

  Instant at{};
  pid_t root = 0;
  Presence presence = Presence::hidden;  // If not visible, all below is unset.
  std::map<pid_t, ProcessUse> tree;      // Includes the root.

  // ---- the waiting thread
  pid_t process = 0;
  pid_t thread = 0;
  char state = '?';  // Letter of /proc/PID/stat.
  bool is_traced = false;
  std::string thawing;   // Command that thaws its cgroup; empty: not frozen.
  uint64_t wakeups = 0;  // Voluntary context switches.
  uint64_t bytes = 0;
  bool call_is_visible = false;
  std::optional<SystemCall> call;  // nullopt: not waiting, if call_is_visible.
  std::string target;              // Link of the call's descriptor; empty: unknown.
  bool is_outside = false;         // What it waits for is outside of the tree,
  std::string outside;             // at this address; empty: a client of any.
  std::string wchan;               // Kernel function that it sleeps in; empty: unknown.

  // ---- other tasks of the tree
  // Wake-ups of tasks that have or want a CPU, the waiting thread included.
  std::map<pid_t, uint64_t> runnable;
  Task uninterruptible;
};

// The state that two samples of one root show, any time apart: limits are rates.
Life life_of(const LifeLook& before, const LifeLook& after);

// Samples a rank's process tree in /proc (life_look.cc). `root`: the worker. `recorder`: the
// process that records, if below it; 0: unknown. Reads stat, status, syscall, wchan, io, cgroup,
// children and links of descriptors, none of which waits for the process; not cmdline, environ,
// maps and mem, which take its memory lock and hang with a process that is stuck in the kernel.
// Covers at most 64 processes and 512 of their threads. Any thread; the control loop may call it.
//
// Cost: 0.07 ms, and 4 us for each further thread, or 11 us if the waiting thread waits for no
// descriptor.
LifeLook look_at(pid_t root, pid_t recorder = 0);

}  // namespace muster::hang
