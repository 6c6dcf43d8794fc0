// The agreements of groups: every member that returns from one returns the same verdict, whatever
// dies meanwhile (a uniform consensus; MPI's users know it as MPI_Comm_agree() of ULFM). Pure:
// takes votes, messages and deaths, and says what to send. Part of the WatchTree, whose updates
// about deaths reach all ranks and are never taken back.
//
// The job's lowest rank that is there coordinates, whether it is a member or not. Members send it
// their votes up the tree. Once it has those of all members that are there, it floods a proposal;
// members accept it by a second vote; once all have, it floods the decision. A coordinator that is
// gone is replaced by the next rank, to which all members vote again, with what they accepted: a
// proposal that one member may have returned was accepted by all others, so it is proposed again.
// The coordinator's rank is the ballot: members ignore proposals of lower ones than they voted to.
//
// The agreements of a group are numbered from 1. No member begins one before it has the decision of
// the one before, so that one decision and each member's newest vote are kept for each group.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "worker_lib/watch/watch_wire.h"

namespace muster::worker::watch {

class Agreements {
 public:
  // What to do after an event.
  struct Step {
    std::vector<Vote> up;           // To the rank above, towards the coordinator.
    std::vector<Message> all;       // To all links.
    std::vector<Message> onward;    // To all links but that on which the message came.
    std::vector<Decision> decided;  // Those that this process waits for.
    std::vector<Missing> missing;   // Who keeps this process waiting.
  };

  // `me` of `size` ranks.
  Agreements(int me, int size) : me_(me), gone_(static_cast<size_t>(size)) {}

  // This process's vote, of the members' next agreement. REQUIRES: it is a member, and has the
  // decision of the one before.
  Step cast(Instant now, Vote mine);
  // Ignore what is known, over, or impossible.
  Step take(Instant now, const Vote& vote);
  Step take(Instant now, const Proposal& proposal);
  Step take(Instant now, const Decision& decision);
  Step take(Instant now, const Missing& missing);
  Step gone(Instant now, int rank);
  Step tick(Instant now);
  Instant next_deadline() const;

  // What a rank needs that has just been linked, in this order.
  std::vector<Message> known() const;

 private:
  struct Agreement {
    std::optional<Decision> decision;  // The last one.
    std::optional<Proposal> proposal;  // The next one's, of the highest ballot.
    std::map<int, Vote> votes;         // The next one's; by rank.
    std::optional<Missing> missing;    // The last one.
    Instant tell_at = kNever;          // When the coordinator says who is missing.

    uint64_t next() const { return decision ? decision->number + 1 : 1; }
  };

  int coordinator() const;
  bool is_there(int rank) const { return !gone_[static_cast<size_t>(rank)]; }
  bool is_valid(const Vote& vote) const;
  Vote* own_vote(Agreement& agreement);
  void send_own(Instant now, Agreement& agreement, Step& step);
  bool accept(Agreement& agreement);
  std::vector<int> awaited(const Agreement& agreement) const;
  void coordinate(Instant now, Agreement& agreement, Step& step);
  void decide(Agreement& agreement, const Decision& decision, Step& step);

  const int me_;
  std::vector<bool> gone_;
  std::map<std::string, Agreement> agreements_;  // By group id.
};

}  // namespace muster::worker::watch
