// Finds the ranks that make others wait, from the times of their calls (arrivals.h): the last rank
// of each call, and how long the others had been waiting for it.
//
//   waited         the mean, over the other members, of the last call's time minus theirs; between
//                  nodes less what their clocks may be apart (clock_offset.h)
//   not its own    what the last one has waited elsewhere since the call before, more than the
//                  others have: the rank that it waited for is charged there
//
// Groups of which most ranks have such a share are left out: their work is uneven. A rank's share
// is that of the group in which it is largest: a delay in one group spreads to others. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/hang/arrivals.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

struct Straggler {
  int rank = -1;
  int node_rank = 0;
  bool is_node = false;      // All ranks of that node together; `rank` is one of them.
  double share = 0;          // Share of the time: 0.12.
  Duration waited{};         // Mean wait of the others in a call.
  uint64_t calls = 0;        // Calls in which it was last, estimated from samples.
  std::string group;         // Name.
  int others = 0;            // Other members.
  bool hides_waits = false;  // Arrivals::hides_waits
};

struct Stragglers {
  Duration time{};
  std::vector<Straggler> ranks;  // The largest share first; never empty.
};

class StragglerTable {
 public:
  static constexpr double kShareMin = 0.05;
  // The least to report.
  static constexpr auto kTimeMin = std::chrono::seconds(5);
  static constexpr uint64_t kCallsMin = 20;
  // The first calls of a group, whose ranks still compile, fill caches or start their loaders.
  static constexpr uint64_t kStartCalls = 20;
  // Shorter waits in a call are scheduling noise.
  static constexpr auto kWaitedMin = std::chrono::microseconds(10);
  static constexpr size_t kListedMax = 3;

  // `error`: of the node's clock against ours, a second at most. Parts of a call come in any order.
  void take(int node_rank, const Arrivals& arrivals, Duration error);
  // The job was suspended or a clock jumped: drops calls that began before.
  void disturb(Instant now);

  // Reports the time since the last report (or the first call), and begins anew. nullopt: none.
  std::optional<Stragglers> report(Instant now);

 private:
  struct Part {
    Arrivals arrivals;
    Duration error{};
  };
  using Parts = std::map<int, Part>;  // By node rank.
  struct Charge {
    double waited = 0;  // Seconds, summed over `calls`.
    double calls = 0;
  };
  struct Group {
    std::string name;
    int size = 0;
    size_t nodes = 0;
    bool hides_waits = false;
    std::map<uint64_t, Parts> open;  // By ordinal.
    // Since the last report. Samples stand for calls that were not sampled.
    uint64_t first = 0;
    uint64_t last = 0;
    uint64_t complete = 0;
    double stood_for = 0;
    std::map<std::pair<int, int>, Charge> charges;  // By node rank and rank.
  };

  void charge(Group& group, const Parts& parts);
  static std::vector<Straggler> shares(const Group& group, double seconds);

  static constexpr size_t kGroupsMax = 4096;
  static constexpr size_t kOpenMax = 512;          // Open calls of a group,
  static constexpr size_t kOpenOfAllMax = 65'536;  // and of all.

  std::optional<Instant> since_;
  Instant disturbed_ = Instant::min();
  std::map<std::string, Group> groups_;  // By id.
  size_t open_ = 0;                      // Calls without the parts of all members.
};

}  // namespace muster::hang
