// When the ranks of a node made their calls: what the search for stragglers (stragglers.h) is made
// of. A collective cannot end before its last rank has called it, so that all others wait for that
// one, by the difference of their times. Only synchronous calls are told: in which of the others a
// rank has waited, and for which of them together, nobody sees.
//
// Not every call of a busy group is told, but the same ones on all nodes: those whose hash ends in
// enough zeroes, so that a program which repeats itself every 16 calls is seen in all of them. A
// node tells one record for each of them and not one for each rank.
//
// Calls on a device are left out: a process makes them ahead of it, some more than others.
//
// What a rank has waited in calls of other groups is no work of its own: it is told as well, as far
// as completions are seen when they happen. Pure, but for the rings that are read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/hang/ring_reader.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

// One node's part in one call of a group.
struct Arrivals {
  std::string group;  // Id.
  std::string name;   // Of the group.
  uint64_t ordinal = 0;
  uint64_t stride = 1;      // One of so many calls is told.
  int size = 0;             // Of the group.
  int ranks = 0;            // Of them, on this node.
  Instant mean{};           // When they made the call.
  Duration mean_blocked{};  // What each has waited elsewhere since the call before.
  int last_rank = -1;       // Global.
  Instant last{};
  Duration last_blocked{};
  bool hides_waits = false;  // What its ranks have waited in its calls is told nowhere else.

  friend bool operator==(const Arrivals&, const Arrivals&) = default;
};

class ArrivalSampler {
 public:
  // Of a whole job, a second.
  static constexpr uint64_t kSamplesOfJob = 8000;

  // Of an attempt.
  explicit ArrivalSampler(int nodes);

  // The calls that a rank of this node has made since the last reading.
  void read(int rank, const RecordedState& state, const RingReader& reader);
  // After all ranks were read: the calls that all of the node's members have made by now.
  std::vector<Arrivals> take(Instant now);

 private:
  struct Group {  // As one rank sees it.
    std::string id;
    Duration blocked{};    // What the rank had waited when its last call here was over.
    uint64_t sampled = 0;  // Ordinal.
  };
  struct Rank {
    RingPosition position;
    Duration blocked{};  // In calls that return when they are complete.
    Instant blocked_until{};
    std::map<uint32_t, Group> groups;  // By handle.

    void was_blocked(Instant since, Instant until);
  };
  struct Lane {       // A group, as the node sees it.
    int members = 0;  // Ranks of this node.
    uint64_t called = 0;
    uint64_t called_before = 0;  // A while ago.
    uint64_t stride = 1;
    std::map<uint64_t, Arrivals> open;  // By ordinal; `mean` and `mean_blocked` are of the ranks
                                        // so far.
  };

  void know_groups(Rank& rank, const RecordedState& state);
  void forget_groups(Rank& rank, const RecordedState& state);
  bool note(int rank, Rank& one, const RecordedState& state, const CallGlance& call);
  void sample(int rank, const RecordedGroup& group, const CallGlance& call, Duration blocked);
  void set_strides(Duration passed);

  const uint64_t samples_;  // Of this node, a second.
  std::map<int, Rank> ranks_;
  std::map<std::string, Lane> lanes_;  // By id.
  std::optional<Instant> strides_set_;
};

// Within `most` bytes; what does not fit is left out. Instants as ages.
std::string encode_arrivals(const std::vector<Arrivals>& arrivals, Instant now, size_t most);
// `then`: the sender's `now` in the reader's clock. nullopt: not such a message.
std::optional<std::vector<Arrivals>> decode_arrivals(std::string_view bytes, Instant then);

}  // namespace muster::hang
