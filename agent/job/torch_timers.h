// Limits that a program may set on its workers, as with torchrun: timers through a FIFO
// (TORCHELASTIC_ENABLE_FILE_TIMER), and the time in uninterruptible sleep
// (TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT). Control loop only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/process/file_timer_server.h"
#include "agent/process/worker_environment.h"
#include "agent/process/worker_processes.h"

namespace muster {

class TorchTimers {
 public:
  TorchTimers(boost::asio::io_context& io, JobSeam& job, const Environment& environment,
              WorkerProcesses& processes, JobRecorder& record);

  // Opens the FIFO once per job: all attempts use the same path, by default in `temp_dir`.
  void open(const std::string& temp_dir, std::function<void(const Result<void>&)> done);
  void watch_uninterruptible();
  void begin_attempt(int workers) { polls_.assign(static_cast<size_t>(workers), 0); }
  void forget(pid_t pid) {
    if (server_) server_->forget(pid);
  }
  std::optional<std::string> path() const {
    return server_ ? std::optional(server_->path()) : std::nullopt;
  }
  void cancel();

 private:
  void on_expired(const FileTimer& timer);
  int local_rank_of(pid_t pid) const;
  void poll(double limit_s);

  boost::asio::io_context& io_;
  JobSeam& job_;
  const Environment& environment_;
  WorkerProcesses& processes_;
  JobRecorder& record_;
  std::unique_ptr<FileTimerServer> server_;
  boost::asio::steady_timer poll_timer_;
  std::vector<int> polls_;  // Consecutive polls that saw each worker in state D.
};

}  // namespace muster
