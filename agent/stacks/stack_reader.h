// Asks children (stack_child.h) for the stacks of processes, a few at a time.
//
// Owned by the agent's loop; control loop only; never blocks.
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

namespace muster {

struct StackTarget {
  int rank = 0;
  pid_t pid = 0;      // The worker's; 0: it has not started.
  pid_t process = 0;  // Whose stacks are wanted; 0: the worker has ended.
  std::string file;   // Where its Python writes them when asked by a signal; empty: nowhere.
};

enum class StackLook { quiet, brief, thorough };  // See stack_child.h.

class StackReader {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(8);

  // In the order of the targets.
  using Done = std::function<void(std::vector<RankStacks>)>;

  // `released`: told of each rank that may have been held, once it no longer is.
  StackReader(boost::asio::io_context& io, WorkerProcesses& processes,
              std::function<void(int rank)> released);

  // Takes 5 s for each target at most, four of them at a time, and `patience` in all. Calls `done`
  // once, unless cancelled; what could not be read says why.
  void read(const std::vector<StackTarget>& targets, StackLook look, Duration patience, Done done);
  // Whether the process of this worker may be held now.
  bool holds(pid_t worker) const;
  // Of all questions.
  void cancel();

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
  std::array<pid_t, kChildrenMax> held_{};  // By child: the worker, if it may be held.
  std::deque<Wanted> waiting_;
};

}  // namespace muster
