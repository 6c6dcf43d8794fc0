// Ranks that wait for keys of the job's store, as the store that muster serves shows them: what
// init_process_group(), new_group() and a program's own store.wait() wait in. They are reported
// after Limits::notice_after, and never judged: any process may set a key at any time.
//
// A rank counts as waiting for a key if its waiting thread is at a socket of the store, or at
// descriptors that are unknown, as in poll(2): libraries keep threads that wait for keys forever.
// Owned by the detector. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/detector_events.h"
#include "rendezvous/base/time.h"
#include "rendezvous/store/awaited_keys.h"

namespace muster::hang {

// The rank of a client; -1: unknown.
using RankOfClient = std::function<int(const KeyClient&)>;

// Says which ranks wait, and which of the others are to set the keys: the rank whose number is in
// the name, if at least two siblings (one in a job of two ranks) were created by the ranks in
// theirs, and no sibling by another.
KeyWait key_wait_of(const AwaitedKeys& wait, const RankOfClient& rank_of, int world_size);

class KeyWaits {
 public:
  // What the detector knows.
  struct Facts {
    Instant now{};
    Instant anew{};  // No wait counts from before this.
    Duration notice_after{};
    int world_size = 0;
    std::function<bool(int rank)> is_free;  // It runs and waits in no recorded call.
    std::function<Suspect(int rank)> look_at;
  };

  // Takes the news of a second. Appends a WaitEnded for each wait that is over and had a notice.
  void take(Instant now, KeysAwaited news, std::vector<Effect>& out);
  void clear() { cases_.clear(); }

  // Adds the ranks whose processes matter to a sorted list.
  void involve(int world_size, std::vector<int>& ranks) const;
  // Appends the notices that are due.
  void report(const Facts& facts, uint64_t& last_number, std::vector<Effect>& out);

 private:
  struct Case {
    KeyWait wait;
    Instant began{};
    std::map<int, Instant> since{};  // By waiting rank.
    uint64_t number = 0;             // The notice's; 0: none yet.

    // Returns the ranks that are to set the keys or, if these are unknown, the others if they are
    // few.
    std::vector<int> suspects(int world_size) const;
  };
  Finding finding_of(const Case& one, const Facts& facts) const;

  std::vector<Case> cases_;  // By age.
  KeysAwaited news_;         // The last.
};

}  // namespace muster::hang
