// What one rank was doing at one moment, as far as hangs are concerned: what the detector reads, on
// whichever node it runs. Plain values. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/ring/call_rules.h"

namespace muster::hang {

enum class GroupPhase : uint8_t { forming, ready, failed, closed };

struct CallDigest {
  uint64_t ordinal = 0;
  ring::Call call;
  Instant called{};
  std::string site;  // "train.py:88 step", "train+0x1a2b"; empty: unknown.
  bool has_failed = false;

  friend bool operator==(const CallDigest&, const CallDigest&) = default;
};

struct HashDigest {
  uint64_t ordinal = 0;  // A multiple of 16.
  uint64_t hash = 0;     // Over the signatures of all calls up to it.

  friend bool operator==(const HashDigest&, const HashDigest&) = default;
};

// An ordered sequence of collectives among members.
struct GroupDigest {
  std::string id;          // Equal on all members, and of no other group of the job.
  std::string name;        // For people.
  std::vector<int> ranks;  // Global ranks in group order; empty: unknown.
  int size = 0;
  int own_rank = -1;
  GroupPhase phase = GroupPhase::ready;
  Instant since{};  // Of the phase.
  uint64_t called = 0;
  uint64_t completed = 0;
  bool completion_is_late = false;     // Completions are noticed later, at a call or a wait.
  bool completion_is_unknown = false;  // A source cannot tell now (a held GIL).
  bool is_on_device = false;           // A device waits in the calls, whatever the process does.
  // Calls are known to be incomplete only where a member has not made them: settle_unseen().
  bool completion_is_unseen = false;
  std::vector<CallDigest> calls;   // The last ones, by ordinal: those in flight among them.
  std::vector<HashDigest> hashes;  // By ordinal.

  friend bool operator==(const GroupDigest&, const GroupDigest&) = default;
};

// The messages of one group, peer and direction.
struct MessageDigest {
  std::string group;  // Id.
  int peer = -1;      // Group rank; -1: from any.
  bool is_recv = false;
  uint64_t called = 0;
  uint64_t completed = 0;
  bool is_on_device = false;          // As its group.
  bool completion_is_unseen = false;  // As its group.
  bool is_synchronous = false;        // The last one.
  Instant called_at{};                // The last one.
  std::string site;

  friend bool operator==(const MessageDigest&, const MessageDigest&) = default;
};

struct RankDigest {
  int rank = 0;
  uint64_t generation = 0;  // Of the process that records: another one begins anew.
  int source = 0;           // ring::Source. Hashes of different sources are not compared.
  Instant at{};
  // Closed ones as well, so that a member that has left can be told from one that is late. One that
  // was shown before and no longer is accuses nobody.
  std::vector<GroupDigest> groups;
  std::vector<MessageDigest> messages;
  std::string section;      // The innermost that it is in; empty: none.
  bool has_failed = false;  // muster's library has reported a failure, and why, to the program.
  bool is_last = false;     // Read after the worker had ended: nothing follows.

  friend bool operator==(const RankDigest&, const RankDigest&) = default;
};

}  // namespace muster::hang
