// Compares the calls of each group's members at the same ordinals (call_rules.h). A majority is
// right; a tie shows all camps. A field that a source does not record matches anything. Each call
// is compared once, when it is first read, so the cost is that of reading.
//
// Hashes show that some call differs if records were overwritten before they were read. What is
// missing is never compared; a record that was refused after it was read (its ordinal is used
// again) is taken back. Owned by the detector. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agent/hang/group_table.h"
#include "agent/hang/rank_state.h"

namespace muster::hang {

struct Mismatch {
  struct Party {
    int rank = 0;
    ring::Call call;  // Kind `unknown`: hashes differ.
  };

  GroupKey group;
  uint64_t ordinal = 0;
  uint64_t from_ordinal = 0;  // Not 0: by hash, a call from here to `ordinal` differs.
  bool is_order = false;      // The same calls in another order.
  bool is_tie = false;
  std::vector<Party> culprits;  // By rank; in a tie all camps.
  ring::Call expected;          // The majority's.
};

class CallComparison {
 public:
  // A difference is judged when all members have made the call, or `settle` later: others may still
  // come and make a majority.
  explicit CallComparison(Duration settle) : settle_(settle) {}

  // The digest's groups must be sound (GroupTable::note).
  void note(const RankDigest& digest, Instant now);

  // Returns what is to be judged now, one for each group ever. `at_once`: without waiting.
  std::vector<Mismatch> take(const std::vector<RankState>& ranks, Instant now, bool at_once);

  bool is_pending() const;
  // True if a stall at this ordinal may come from a difference that is judged or pending.
  bool explains(const GroupKey& group, uint64_t ordinal) const;

  void forget_groups(const std::function<bool(const GroupKey& group)>& kept);

 private:
  // Ranks that made the same call, or have the same hash.
  struct Made {
    ring::Call call;
    std::vector<int> ranks;
  };
  struct Hashed {
    int source = 0;
    uint64_t hash = 0;
    std::vector<int> ranks;
  };
  // The last call and hash of a rank.
  struct Newest {
    uint64_t ordinal = 0;
    ring::Call call;
    uint64_t hash_ordinal = 0;
    uint64_t hash = 0;
  };
  struct Compared {
    size_t size = 0;
    std::map<uint64_t, std::vector<Made>> calls;     // By ordinal: not made by all, or differing.
    std::map<uint64_t, std::vector<Hashed>> hashes;  // Like `calls`.
    std::map<int, Newest> newest;                    // By rank.
    std::set<uint64_t> agreed;                       // Ordinals at which all members agree.
    uint64_t hashes_agree_to = 0;
    std::optional<Instant> differs_since;
    uint64_t differs_at = 0;
    bool is_closed = false;  // Judged, or reported to the program by the library.
  };

  static void note_calls(Compared& compared, int rank, const GroupDigest& group, Instant now);
  static void note_hashes(Compared& compared, const RankDigest& digest, const GroupDigest& group,
                          Instant now);
  static void add_call(Compared& compared, int rank, uint64_t ordinal, const ring::Call& call,
                       Instant now);
  static void add_hash(Compared& compared, int rank, int source, const HashDigest& hash,
                       Instant now);
  static void take_back(Compared& compared, int rank, uint64_t after);
  static std::optional<Mismatch> judge_calls(const Compared& compared, uint64_t ordinal);
  static std::optional<Mismatch> judge_hashes(const Compared& compared, uint64_t ordinal);
  std::optional<Mismatch> judge(const GroupKey& key, Compared& compared,
                                const std::vector<RankState>& ranks, Instant now, bool at_once);

  Duration settle_;
  std::map<GroupKey, Compared> groups_;
};

}  // namespace muster::hang
