// Decides when this process reports that it got SIGTERM. The launcher sends SIGTERM to all ranks
// because one has failed, so it arrives at about the same time as the report of a death, which the
// user wants to read. So `stopped` is reported when a death is known, when the launcher's reason
// has been read, when a rank ends that had reported SIGTERM, or after kPatience. The other ranks
// are informed at once. Runs on the watch's thread; the query to the launcher's store has its own.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/watch/stop_signal.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {

class WatchStop {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(100);

  struct Options {
    GlobalRank me;
    StopPolicy policy = StopPolicy::end_calls;
    std::function<std::optional<Failure>()> ask_cause;
    std::function<void()> wake;                       // Makes the watch's thread call on_extra().
    std::function<void(const Watch::News&)> tell;     // Sends to the other ranks.
    std::function<void(const Watch::News&)> publish;  // Calls this process's listeners.
  };

  WatchStop(Options options, std::unique_ptr<StopSignal> signal);
  WatchStop(WatchStop&&) = delete;
  ~WatchStop();

  StopSignal& signal() { return *signal_; }
  const StopSignal& signal() const { return *signal_; }

  // Call when a rank's death has been published.
  void on_death(Instant now);
  // Call before publishing the death of a rank that had reported stopping because of `why`.
  void on_expected_death(Instant now, const Failure& why);
  // Call when something may have changed: SIGTERM came, the query was answered, time passed.
  void on_extra(Instant now);
  Instant deadline() const { return deadline_; }

 private:
  void ask();
  void say(const Failure& failure);
  Watch::News news(const Failure& failure) const;

  const Options options_;
  std::unique_ptr<StopSignal> signal_;
  bool waits_no_more_ = false;
  bool came_ = false;
  bool said_ = false;
  Instant deadline_ = kNever;

  std::mutex mutex_;  // Guards cause_.
  std::optional<Failure> cause_;
  std::thread question_;
};

}  // namespace muster::worker
