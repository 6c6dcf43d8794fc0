// Asks something of a child process that can be killed: what looks at a GPU driver, or at a process
// that is stuck in the kernel, can hang there for minutes. The child is this same binary with a
// hidden flag, and prints its answer to a pipe. Control loop only; never blocks. One question at a
// time.
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
    std::vector<std::string> arguments;  // Of muster, the hidden flag first.
    Duration limit{};
    std::string what;  // "ask the GPU driver", for the error if it cannot be started.
    std::string late;  // The error if there is no answer within `limit`.
    // What has been printed when the limit is over counts, if it has a whole line.
    bool takes_part = false;
    int kept_fd = -1;  // SpawnRequest::kept_fd
  };
  using Done = std::function<void(Result<std::string>)>;  // What the child printed.

  // Registers the child with `processes` as a helper, which is not part of the job.
  HelperProcess(boost::asio::io_context& io, WorkerProcesses& processes);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  // Fails with ExitCode::environment. REQUIRES: no question is in flight.
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
  std::shared_ptr<std::string> text_;                            // Likewise: what has come.
  SpawnedProcess child_;
  Done done_;
  int question_ = 0;  // The current one, so that late completions of older ones are ignored.
};

}  // namespace muster
