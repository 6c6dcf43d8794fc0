// A barrier through the store that finds out which ranks are missing. All ranks that arrive get the
// same verdict, whatever their own time-outs: the last one to arrive decides "all are here", the
// first one whose deadline passes decides which were late, and the first decision holds for all,
// including later arrivals. Owned by a group. Any thread; one barrier at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/recorder/lane_recorder.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

class MonitoredBarrier {
 public:
  struct Call {
    const Members& members;
    // Opens a connection with a prefix for this group's barriers.
    std::function<Outcome<StoreClient>(Deadline)> connect;
    std::function<std::optional<Failure>()> interrupted;
    Deadline deadline;
    std::chrono::milliseconds limit;  // Shown in messages.
    bool wait_all_ranks;
    LaneRecorder recorder;
  };

  // Sets `number` to the count of this rank's barriers, this one included. Ranks with different
  // counts do not meet; the number in their messages shows that.
  Outcome<> pass(const Call& call, uint64_t& number);
  // Progress for other ranks' queries, at any time.
  LaneProgress progress() const {
    LaneProgress progress;
    progress.begun = begun_.load();
    progress.ended = ended_.load();
    progress.last = "monitored_barrier";
    progress.is_held = true;
    return progress;
  }
  // Closes the connection: the process that hosts the store waits for its clients.
  void disconnect();

 private:
  Outcome<> meet(const Call& call, uint64_t number);
  Outcome<StoreClient> connected(const Call& call);

  std::mutex mutex_;
  std::optional<StoreClient> store_;  // Opened by the first call, and again after it broke.
  std::atomic<uint64_t> begun_{0};    // Barriers; counted alike on all members.
  std::atomic<uint64_t> ended_{0};
};

}  // namespace muster::worker
