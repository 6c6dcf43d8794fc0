// Stacks of a rank's threads, and what the processes below it do: flat values of the control
// protocol, and their text.
//
//   rank 5 (pid 4713): read ← load_batch (train.py:88) ← main (train.py:140)
//     child 4720 (pt_data_worker) and 2 alike: blocked in openat() at __getitem__ (data.py:12)
//   7 ranks (0-4,6-7): epoll_wait ← all_reduce (distributed_c10d.py:2806) ← step (train.py:31)
//
// Pure: a child process reads them (stack_child.h), and nothing here trusts their text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace muster {

// Kept per rank, and per thread.
inline constexpr size_t kStackThreadsMax = 256;
inline constexpr size_t kStackFramesMax = 128;

struct StackFrame {
  std::string function;  // Empty: unknown.
  std::string file;      // Source file; for native code without line numbers the mapped file.
  int line = 0;          // 0: unknown.

  friend bool operator==(const StackFrame&, const StackFrame&) = default;
};

struct ThreadStack {
  pid_t thread = 0;  // 0: unknown.
  std::string name;
  std::vector<StackFrame> frames;  // The innermost first.

  friend bool operator==(const ThreadStack&, const ThreadStack&) = default;
};

// A process of a rank, and its main thread.
struct ProcessStack {
  pid_t pid = 0;
  std::string name;
  std::string ended{};          // "was killed by SIGKILL", "exited with 1"; empty: it runs.
  std::string doing{};          // As describe(hang::Life) says; empty: it has ended, or is unknown.
  bool is_idle = false;         // As far as is known it waits for work, as a worker of a pool does.
  bool is_sole_holder = false;  // See hang::is_sole_holder().
  bool waits_for_thread = false;     // Or for a lock.
  pid_t lock_holder = 0;             // Holds the file lock that it waits for; 0: none, or unknown.
  std::string lock_holder_name{};    // Empty: it has ended.
  int lock_holder_rank = -1;         // The rank whose process that is; -1: none of this node.
  std::vector<StackFrame> frames{};  // The innermost first.

  friend bool operator==(const ProcessStack&, const ProcessStack&) = default;
};

// A thread that an exception ended, while the program went on.
struct EndedThread {
  std::string name;
  std::string error;  // "ValueError: bad record"
  std::string site;   // "data.py:12 read"; empty: unknown.
  double ended_ago_s = 0;

  friend bool operator==(const EndedThread&, const EndedThread&) = default;
};

struct RankStacks {
  int rank = 0;
  pid_t pid = 0;                     // The worker's.
  pid_t process = 0;                 // The one that was read: the worker or one below it.
  bool in_call = false;              // A recorded collective is pending.
  std::vector<ThreadStack> threads;  // The main thread first.
  std::string missing;               // One line: what could not be read, and why. Empty: nothing.
  // The one that was read, then those below it, the most telling first. Empty: not looked at.
  std::vector<ProcessStack> processes{};
  int processes_left_out = 0;
  std::optional<EndedThread> ended_thread{};

  friend bool operator==(const RankStacks&, const RankStacks&) = default;
};

// Replaces each thread's native frames from the interpreter's first on by its Python frames.
// `process` names the main thread. Python threads that `native` lacks follow.
std::vector<ThreadStack> merge_stacks(std::vector<ThreadStack> native,
                                      std::vector<ThreadStack> python, pid_t process);

// "c10d::ProcessGroupGloo::allreduce": a demangled name without arguments of functions and
// templates.
std::string short_function_name(std::string_view demangled);

// "read ← load_batch (train.py:88) ← main (train.py:140)": the innermost frame, and those of the
// user's own code. Cleaned.
std::string stack_line(const std::vector<StackFrame>& frames);

// The main thread's line. REQUIRES: the rank has threads.
std::string main_line(const RankStacks& rank);

// False if a child with these frames waits for work: none of them is of the program, apart from
// those that it has from its parent's fork().
bool is_at_work(const std::vector<StackFrame>& frames);

// Leaves out the threads that do not show what the main thread waits for.
void keep_telling_threads(RankStacks& rank);

// What the main thread waits for, a line each: a file lock's holder, threads of the program, and
// the processes below. Empty if nothing is known, or the main thread's line says it all.
std::vector<std::string> waits_lines(const RankStacks& rank);

// Ranks with the same main_line share an entry, in order of appearance, each with its waits_lines.
// With `details`, every thread and process with all its frames. Each line is indented by two
// blanks.
std::string stacks_text(const std::vector<RankStacks>& ranks, bool details);

}  // namespace muster
