// Which ranks make the others wait: from when each rank has made its calls (arrivals.h), the last
// one of each call, and how long the others had been waiting for it then.
//
//   waited     the mean, over the other members, of the last call's time minus theirs; between
//              nodes less what their clocks may be apart (clock_offset.h)
//   not its own    what the last one has waited elsewhere since the call before, more than the
//              others have: it is late since another rank is, and that one is charged there
//
// A rank's share is that of the group in which it is largest: a delay in one group goes on in
// others. Pure.
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
  double share = 0;          // Of the time: 0.12.
  Duration waited{};         // By the others, in a call, on average.
  uint64_t calls = 0;        // In which it was the last, as far as can be told from samples.
  std::string group;         // Name.
  int others = 0;            // Members.
  bool hides_waits = false;  // Arrivals::hides_waits
};

struct Stragglers {
  Duration time{};
  std::vector<Straggler> ranks;  // The largest share first; never empty.
};

class StragglerTable {
 public:
  static constexpr double kShareMin = 0.05;
  // Less is no reason to say anything.
  static constexpr auto kTimeMin = std::chrono::seconds(5);
  static constexpr uint64_t kCallsMin = 20;
  // Of a call; what is less, a busy machine does to every rank.
  static constexpr auto kWaitedMin = std::chrono::microseconds(10);
  static constexpr size_t kListedMax = 3;

  // `error`: of the node's clock against this one's, a second at most. The parts of one call come
  // in any order.
  void take(int node_rank, const Arrivals& arrivals, Duration error);
  // The job was suspended, or a clock jumped: calls that began before say nothing.
  void disturb(Instant now);

  // Of the time since the last report, which begins anew, or since the first call. nullopt: nobody.
  std::optional<Stragglers> report(Instant now);

 private:
  struct Part {
    Arrivals arrivals;
    Duration error{};
  };
  using Parts = std::map<int, Part>;  // By node rank.
  struct Charge {
    double waited = 0;  // Seconds, times `calls`.
    double calls = 0;
  };
  struct Group {
    std::string name;
    int size = 0;
    size_t nodes = 0;
    bool hides_waits = false;
    std::map<uint64_t, Parts> open;  // By ordinal.
    // Since the last report. Samples stand for calls that nobody has told.
    uint64_t first = 0;
    uint64_t last = 0;
    uint64_t complete = 0;
    double stood_for = 0;
    std::map<std::pair<int, int>, Charge> charges;  // By node rank and rank.
  };

  void charge(Group& group, const Parts& parts);
  static std::vector<Straggler> shares(const Group& group, double seconds);

  static constexpr size_t kGroupsMax = 4096;
  static constexpr size_t kOpenMax = 512;          // Calls of a group,
  static constexpr size_t kOpenOfAllMax = 65'536;  // and of all.

  std::optional<Instant> since_;
  Instant disturbed_ = Instant::min();
  std::map<std::string, Group> groups_;  // By id.
  size_t open_ = 0;                      // Calls that not all members have told.
};

}  // namespace muster::hang
