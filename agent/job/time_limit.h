// Warns before the engine ends the job (--notice-before), and returns the job to its queue
// (--requeue). The questions to each engine are in the spec (launcher/engines/).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/job/job_seam.h"
#include "agent/launch_spec.h"
#include "agent/process/helper_process.h"

namespace muster {

class TimeLimit {
 public:
  // `is_short` is called with a signal once the notice is due.
  TimeLimit(boost::asio::io_context& io, JobSeam& job, const LaunchSpec& spec,
            WorkerProcesses& processes, std::function<void(int)> is_short);

  // Called in the first round; only node 0 watches, so that not a thousand nodes ask the engine.
  void watch();
  void end_notice() { notice_.cancel(); }
  void cancel();

  // Puts the job back into its queue if the engine pre-empts it, or `in_any_case`; it will start
  // anew with the state that it saved. Calls `next` in the end. Call this last: a requeued job is
  // killed by its engine.
  void requeue(bool in_any_case, std::function<void()> next);

 private:
  void ask(const EngineQuestion& question, Duration limit, std::string what,
           std::function<void(const std::string&)> done);
  void ask_time_left();
  void on_time_left(const std::string& answer);
  void wait_for_notice(Duration left, bool is_fresh);
  void notice_in_time();
  void on_requeued(const std::string& answer);

  JobSeam& job_;
  const LaunchSpec& spec_;
  const std::function<void(int)> is_short_;
  HelperProcess helper_;
  boost::asio::steady_timer notice_;
  std::optional<std::chrono::steady_clock::time_point> notice_at_;
  bool is_watched_ = false;
  bool said_unknown_ = false;
};

}  // namespace muster
