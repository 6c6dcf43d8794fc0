// A barrier through the store that knows who has not come. All ranks that came get the same
// verdict, whatever their own time-outs: the last one to come decides "all are here", and the first
// whose time is over decides who was late, and whoever is first decides for all, also for those
// that come later still.
//
// Owned by a group. Any thread; one barrier at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

class MonitoredBarrier {
 public:
  struct Call {
    const Members& members;
    // A connection with keys for this group's barriers alone.
    std::function<Outcome<StoreClient>(Deadline)> connect;
    std::function<std::optional<Failure>()> interrupted;
    Deadline deadline;
    std::chrono::milliseconds limit;  // For messages.
    bool wait_all_ranks;
  };

  // `number`: how many-th barrier of this rank it is. Ranks that have passed different numbers of
  // them do not meet, and see that by it.
  Outcome<> pass(const Call& call, uint64_t& number);
  // For who asks where this rank is; any time.
  LaneProgress place() const {
    LaneProgress place;
    place.begun = begun_.load();
    place.ended = ended_.load();
    place.last = "monitored_barrier";
    place.is_held = true;
    return place;
  }
  // Lets the connection go, for who hosts the store waits for its clients.
  void disconnect();

 private:
  Outcome<StoreClient> connected(const Call& call);

  std::mutex mutex_;
  std::optional<StoreClient> store_;  // Made by the first call, and anew where it broke.
  std::atomic<uint64_t> begun_{0};    // Barriers: equal on all members.
  std::atomic<uint64_t> ended_{0};
};

}  // namespace muster::worker
