// Stacks of a rank's threads: flat values of the control protocol, and their text.
//
//   rank 5 (pid 4713): read ← load_batch (train.py:88) ← main (train.py:140)
//   7 ranks (0-4,6-7): epoll_wait ← all_reduce (distributed_c10d.py:2806) ← step (train.py:31)
//
// Pure: a child process reads them (stack_child.h), and nothing here trusts their text.
#pragma once

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

struct RankStacks {
  int rank = 0;
  pid_t pid = 0;                     // The worker's.
  pid_t process = 0;                 // The one that was read: the worker or one below it.
  bool in_call = false;              // A recorded collective is pending.
  std::vector<ThreadStack> threads;  // The main thread first.
  std::string missing;               // One line: what could not be read, and why. Empty: nothing.

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

// The main thread's line; other threads do not show why the rank waits. REQUIRES: the rank has
// threads.
std::string main_line(const RankStacks& rank);

// Ranks with the same main_line share an entry, in order of appearance. With `details`, every
// thread with all its frames. Each line is indented by two blanks.
std::string stacks_text(const std::vector<RankStacks>& ranks, bool details);

}  // namespace muster
