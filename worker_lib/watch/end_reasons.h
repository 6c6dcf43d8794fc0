// Why ranks end after others: so that the death of one that was stopped, or whose group was given
// up, is not taken for the first failure. Part of the WatchTree.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker::watch {

// Time within which a rank may end because its group was given up.
inline constexpr Duration kAftermath = std::chrono::seconds(10);

class EndReasons {
 public:
  void note(Instant now, const Watch::News& news);

  // Puts the reason into the news of a death. Returns it if the rank had been stopped.
  std::optional<Failure> explain(Instant now, const Members& world, Watch::News& death) const;

 private:
  struct GivenUp {
    Instant at{};
    Watch::News news;
  };

  const Failure* reason_to_end(Instant now, GlobalRank rank) const;

  std::map<int, Failure> stopped_;  // The reported reason, by rank.
  std::vector<GivenUp> given_up_;   // Within the last kAftermath.
};

}  // namespace muster::worker::watch
