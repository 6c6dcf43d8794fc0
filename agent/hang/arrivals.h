// When the ranks of a node made their calls: the input of the straggler search (stragglers.h). A
// collective cannot end before its last rank has called it, so each other rank waits for that one
// by the difference of their call times. Only synchronous calls are sampled: nothing shows whether
// and where a rank waits for another call.
//
// All nodes sample the same calls of a busy group: those whose hash ends in enough zero bits, so
// that a program that repeats itself every 16 calls, say, is sampled in each phase. A node reports
// one record for each such call, not one for each rank.
//
// Device calls are left out, since processes enqueue them ahead of the device, some more than
// others. The time that a rank was blocked in calls of other groups is not its own delay; it is
// reported too, as far as completions are seen when they happen. Pure, except that it reads rings.
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
  std::string name;   // The group's.
  uint64_t ordinal = 0;
  uint64_t number = 0;      // The call's number among the synchronous ones, estimated.
  uint64_t stride = 1;      // One call in this many is sampled.
  int size = 0;             // The group's members.
  int ranks = 0;            // Members on this node.
  Instant mean{};           // Mean time of their calls.
  Duration mean_blocked{};  // Mean time blocked elsewhere since their previous call here.
  int last_rank = -1;       // Global rank that called last.
  Instant last{};
  Duration last_blocked{};
  bool hides_waits = false;  // Waits in this group's calls are in no record's `blocked`.

  friend bool operator==(const Arrivals&, const Arrivals&) = default;
};

class ArrivalSampler {
 public:
  // Samples per second of the whole job.
  static constexpr uint64_t kSamplesOfJob = 8000;

  // Serves one attempt.
  explicit ArrivalSampler(int nodes);

  // Reads the calls that a rank of this node has made since the last read.
  void read(int rank, const RecordedState& state, const RingReader& reader);
  // Returns the calls that all of the node's members have made. Call after reading all ranks.
  std::vector<Arrivals> take(Instant now);

 private:
  struct Group {  // As one rank sees it.
    std::string id;
    Duration blocked{};      // Rank::blocked when its last call here ended.
    uint64_t sampled = 0;    // Ordinal of the last call considered.
    double read = 0;         // Calls that were read,
    double synchronous = 0;  // and those of them that count.
  };
  struct Rank {
    RingPosition position;
    Duration blocked{};  // Total time in calls that return when complete.
    Instant blocked_until{};
    std::map<uint32_t, Group> groups;  // By handle.

    void was_blocked(Instant since, Instant until);
  };
  struct Lane {       // A group, as the node sees it.
    int members = 0;  // On this node.
    uint64_t called = 0;
    uint64_t called_before = 0;  // `called` when strides were last set.
    uint64_t stride = 1;
    std::map<uint64_t, Arrivals> open;  // By ordinal; the means cover the ranks so far.
  };

  void know_groups(Rank& rank, const RecordedState& state);
  void forget_groups(Rank& rank, const RecordedState& state);
  bool note(int rank, Rank& one, const RecordedState& state, const CallGlance& call);
  void sample(int rank, const RecordedGroup& group, const CallGlance& call, Duration blocked,
              uint64_t number);
  void set_strides(Duration passed);

  const uint64_t samples_;  // This node's budget per second.
  std::map<int, Rank> ranks_;
  std::map<std::string, Lane> lanes_;  // By id.
  std::optional<Instant> strides_set_;
};

// Encodes as many as fit into `most` bytes; instants become ages.
std::string encode_arrivals(const std::vector<Arrivals>& arrivals, Instant now, size_t most);
// `then`: the sender's `now` on the reader's clock. nullopt: malformed.
std::optional<std::vector<Arrivals>> decode_arrivals(std::string_view bytes, Instant then);

}  // namespace muster::hang
