// Asks child processes (stack_child.h) for the stacks of processes, a few at a time. Control loop
// only; never blocks.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/hang/stacks.h"
#include "agent/process/helper_process.h"
#include "agent/stacks/tree_look.h"

namespace muster {

struct StackTarget {
  int rank = 0;
  pid_t pid = 0;        // The worker's; 0: it has not started.
  pid_t process = 0;    // The process to read; 0: the worker has ended.
  std::string file;     // File to which its Python writes them on a signal (stack_signal.h), or "".
  TreeFindings tree{};  // Empty: those below it are not shown.
};

enum class StackLook { quiet, brief, thorough };  // See stack_child.h.

class StackReader {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(8);

  // Gets one entry per target, in their order.
  using Done = std::function<void(std::vector<RankStacks>)>;

  // `released`: called for each rank that may have been held by ptrace, once it no longer is.
  StackReader(boost::asio::io_context& io, WorkerProcesses& processes,
              std::function<void(int rank)> released);

  // Reads four targets at a time, each within 5 s, all within `patience`. Calls `done` once, unless
  // cancelled; an entry that could not be read says why.
  void read(const std::vector<StackTarget>& targets, StackLook look, Duration patience, Done done);
  // True while this worker's process may be held by ptrace.
  bool holds(pid_t worker) const;
  void cancel();  // Drops all questions.

 private:
  static constexpr size_t kChildrenMax = 4;

  struct Question {
    std::vector<RankStacks> stacks;
    size_t missing = 0;
    StackLook look = StackLook::quiet;
    Duration patience{};
    Deadline limit{};
    Done done;
  };
  struct Wanted {
    std::shared_ptr<Question> question;
    size_t index = 0;
    StackTarget target;
  };

  void start_next();
  void take(Wanted& wanted, Result<std::string> answer);

  const std::function<void(int rank)> released_;
  std::array<HelperProcess, kChildrenMax> children_;
  std::array<pid_t, kChildrenMax> held_{};  // The worker that each child may hold; 0: none.
  std::deque<Wanted> waiting_;
};

}  // namespace muster
