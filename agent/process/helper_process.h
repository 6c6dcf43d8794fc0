// Asks a killable child process a question, one at a time: code that queries a GPU driver, or
// inspects a process that is stuck in the kernel, can hang for minutes. The child is this same
// binary with a hidden flag, and prints its answer to a pipe. Control loop only; never blocks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/worker_processes.h"
#include "rendezvous/base/error.h"

namespace muster {

class HelperProcess {
 public:
  struct Question {
    std::vector<std::string> arguments;  // Arguments of muster, the hidden flag first.
    Duration limit{};
    std::string what;  // "ask the GPU driver", for the error if it cannot be started.
    std::string late;  // The error if there is no answer within `limit`.
    // True if output that has at least one whole line when `limit` is over counts as the answer.
    bool takes_part = false;
    int kept_fd = -1;  // SpawnRequest::kept_fd
  };
  using Done = std::function<void(Result<std::string>)>;  // Called with the child's output.

  // Registers the child with `processes` as a helper, which is not part of the job.
  HelperProcess(boost::asio::io_context& io, WorkerProcesses& processes);
  ~HelperProcess();
  HelperProcess(HelperProcess&&) = delete;

  // Calls `done` once: with the output, or ExitCode::environment. REQUIRES: !is_busy().
  void ask(Question question, Done done);
  bool is_busy() const { return done_ != nullptr; }

  // Kills the child of a question in flight; its Done is not called.
  void cancel();

 private:
  void start(const Question& question);
  void finish(Result<std::string> result);
  void end_child();

  boost::asio::io_context& io_;
  WorkerProcesses& processes_;
  boost::asio::steady_timer limit_timer_;
  std::shared_ptr<boost::asio::posix::stream_descriptor> pipe_;  // Shared with the read in flight.
  std::shared_ptr<std::string> text_;                            // The output; shared like pipe_.
  SpawnedProcess child_;
  Done done_;
  int question_ = 0;  // Its number, by which late completions of earlier ones are ignored.
};

}  // namespace muster
