// Queries the GPU driver in a child process: a driver can hang in the kernel for minutes, so the
// query runs in a process that can be killed, and is given up after a limit. The child is this same
// binary with a hidden flag (`--internal-devices`, `--internal-device-users`) and prints one line
// of JSON to a pipe. Control loop only; never blocks. One query at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/worker_processes.h"
#include "rendezvous/base/error.h"

namespace muster {

class DeviceProbe {
 public:
  using Done = std::function<void(Result<std::string>)>;  // What the child printed.

  // Registers the child with `processes` as a helper, which is not part of the job.
  DeviceProbe(boost::asio::io_context& io, WorkerProcesses& processes);
  ~DeviceProbe();
  DeviceProbe(const DeviceProbe&) = delete;
  DeviceProbe& operator=(const DeviceProbe&) = delete;

  // Fails with ExitCode::environment when the child cannot be started or does not answer within
  // `limit`. REQUIRES: no query is in flight.
  void ask(const std::string& flag, Duration limit, Done done);

  // Kills the child of a query in flight; its Done is not called.
  void cancel();

 private:
  void finish(Result<std::string> result);

  boost::asio::io_context& io_;
  WorkerProcesses& processes_;
  boost::asio::steady_timer limit_timer_;
  std::shared_ptr<boost::asio::posix::stream_descriptor> pipe_;  // Shared with the read in flight.
  SpawnedProcess child_;
  Done done_;
  int question_ = 0;  // The current query, so that late completions of older ones are ignored.
};

}  // namespace muster
