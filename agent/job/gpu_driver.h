// Queries this machine's GPU driver. A child process asks, since the driver may hang.
// Control loop only.
#pragma once

#include <chrono>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/job/job_seam.h"
#include "agent/placement/devices.h"
#include "agent/process/helper_process.h"
#include "agent/process/worker_processes.h"
#include "rendezvous/base/error.h"

namespace muster {

class GpuDriver {
 public:
  GpuDriver(boost::asio::io_context& io, JobSeam& job, WorkerProcesses& processes)
      : job_(job), processes_(processes), helper_(io, processes), pause_(io) {}

  // Calls `done` within 20 s, unless the job ends.
  void find_devices(std::function<void(const Result<DeviceReport>&)> done);
  // Calls `next` once no process of this job that has ended holds memory of a GPU, or after 20 s:
  // the driver lists a dead process until its memory is freed, and a worker started before that
  // fails with "out of memory" on a GPU that looks free. Does not wait on a machine without GPUs.
  void when_memory_is_free(std::function<void()> next);
  void cancel();

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  void ask(const char* flag, Duration limit, HelperProcess::Done done);
  void look_at_memory(Deadline give_up, std::function<void()> next);

  JobSeam& job_;
  WorkerProcesses& processes_;
  HelperProcess helper_;
  boost::asio::steady_timer pause_;
  bool has_gpus_ = false;  // False until the driver was asked.
};

}  // namespace muster
