// Where the threads of a rank are: flat values for the control protocol, and their text.
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

// As many as are kept of one rank.
inline constexpr size_t kStackThreadsMax = 256;
inline constexpr size_t kStackFramesMax = 128;

struct StackFrame {
  std::string function;  // Empty: unknown.
  std::string file;      // Source file; of native code without line numbers the mapped file.
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
  pid_t process = 0;                 // That was looked at: the worker, or one below it.
  bool in_call = false;              // In a collective that is pending; of a rank that records.
  std::vector<ThreadStack> threads;  // The main thread first.
  std::string missing;               // One line: what could not be read, and why. Empty: nothing.

  friend bool operator==(const RankStacks&, const RankStacks&) = default;
};

// Puts the Python frames of each thread under the native ones that the interpreter has called.
// `process` names the main thread. Those of threads that `native` lacks follow.
std::vector<ThreadStack> merge_stacks(std::vector<ThreadStack> native,
                                      std::vector<ThreadStack> python, pid_t process);

// "c10d::ProcessGroupGloo::allreduce" of a demangled name: without arguments of functions and
// templates.
std::string short_function_name(std::string_view demangled);

// "read ← load_batch (train.py:88) ← main (train.py:140)": the innermost frame, and those of the
// user's own code. Cleaned.
std::string stack_line(const std::vector<StackFrame>& frames);

// The same for the main thread; other threads say nothing about why the rank waits. REQUIRES: the
// rank has threads.
std::string main_line(const RankStacks& rank);

// Ranks whose main threads are in the same functions share an entry, in the order in which they
// come. With `details`, every thread with all its frames. Each line is indented by two blanks.
std::string stacks_text(const std::vector<RankStacks>& ranks, bool details);

}  // namespace muster
