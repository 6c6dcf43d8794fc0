// Decides when this process reports that it was told to stop. The launcher sends SIGTERM to all
// ranks because one has failed, so SIGTERM and the news of a death arrive at about the same time,
// and the death is what the user wants to read. So `stopped` is reported when a death is known,
// when the launcher's own account has been read, when others end because of it, or after kPatience.
// The other ranks are told at once, so that they know why this one ends. Runs on the watch's
// thread; the query to the launcher's store has a thread of its own.
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
    std::function<void()> wake;                    // Has on_extra() called on the watch's thread.
    std::function<void(const Watch::News&)> tell;  // Tells the other ranks.
    std::function<void(const Watch::News&)> publish;  // Tells this process.
  };

  WatchStop(Options options, std::unique_ptr<StopSignal> signal);
  WatchStop(const WatchStop&) = delete;
  WatchStop& operator=(const WatchStop&) = delete;
  ~WatchStop();

  StopSignal& signal() { return *signal_; }
  const StopSignal& signal() const { return *signal_; }

  // A rank died, and the news has been published.
  void on_death(Instant now);
  // A rank died that had been told to stop because of `why`; the news will be published next.
  void on_expected_death(Instant now, const Failure& why);
  // Something may have changed: SIGTERM came, the query was answered, time passed.
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
