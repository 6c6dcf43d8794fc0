// Snapshot of one rank, as far as hangs are concerned: the detector's input, from any node. Plain
// values. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

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
  // Its recorder has not looked since: it may yet withdraw the call, which was refused.
  bool may_be_withdrawn = false;

  friend bool operator==(const CallDigest&, const CallDigest&) = default;
};

struct HashDigest {
  uint64_t ordinal = 0;  // A multiple of 16.
  uint64_t hash = 0;     // Covers the signatures of all calls up to it.

  friend bool operator==(const HashDigest&, const HashDigest&) = default;
};

// An ordered sequence of collectives among members.
// What people know a group by.
struct GroupName {
  std::string text;   // "mesh_tp"; the id of a nameless one.
  std::string ranks;  // "0-3,7,... (5 more)"; empty: unknown, or all of the job.

  friend bool operator==(const GroupName&, const GroupName&) = default;
};

struct GroupDigest {
  std::string id;  // Equal on all members, unique in the job.
  std::string name;
  std::vector<int> ranks;  // Global ranks in group order; empty: unknown.
  int size = 0;
  int own_rank = -1;
  GroupPhase phase = GroupPhase::ready;
  Instant since{};  // Start of the phase.
  uint64_t called = 0;
  uint64_t completed = 0;
  bool completion_is_late = false;     // Completions are noticed late, at a later call or wait.
  bool completion_is_unknown = false;  // The recorder cannot see completions now (a held GIL).
  bool is_on_device = false;           // The device waits in the calls, not the process.
  // A call is known to be incomplete only if a member has not made it: settle_unseen().
  bool completion_is_unseen = false;
  std::vector<CallDigest> calls;   // The last ones and those in flight, by ordinal.
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
  bool is_on_device = false;          // The group's.
  bool completion_is_unseen = false;  // True on a device.
  bool is_synchronous = false;        // The last message's.
  Instant called_at{};                // The last message's.
  std::string site;

  friend bool operator==(const MessageDigest&, const MessageDigest&) = default;
};

struct RankDigest {
  int rank = 0;
  uint64_t generation = 0;  // Counts recording processes.
  pid_t process = 0;        // The one that records.
  int source = 0;           // ring::Source. Hashes of different sources are not compared.
  Instant at{};
  // Includes closed ones, to tell members that left from late ones. Missing ones accuse no rank.
  std::vector<GroupDigest> groups;
  std::vector<MessageDigest> messages;
  std::string section;      // The innermost open one; empty: none.
  bool has_failed = false;  // muster's library has reported a failure and its cause to the program.
  bool is_last = false;     // Read after the worker had ended.

  friend bool operator==(const RankDigest&, const RankDigest&) = default;
};

}  // namespace muster::hang
