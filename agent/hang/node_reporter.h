// Decides what a node reports about its ranks to the hang detector, and when. A pure machine: what
// NodeWatch sees in, messages out.
//
//   at each poll (kLookEvery)   if a rank of the node has waited in a call for kPendingAfter, if
//                               the detector wants one sampled, or at the end of a rank
//   else each second            so that late ranks are known, and hashes are compared
//
// A message covers all ranks, but only confirms digests that were sent kTellings times, the last
// within a second. What exceeds kLetterBytesMax is sent with the next ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/hang/detector_events.h"
#include "agent/hang/node_digest.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

class NodeReporter {
 public:
  static constexpr auto kLookEvery = std::chrono::milliseconds(250);
  static constexpr auto kPendingAfter = std::chrono::milliseconds(250);
  static constexpr auto kIdleEvery = std::chrono::seconds(1);
  // Wanted ranks are forgotten unless the detector asks again within this time.
  static constexpr auto kWantedFor = std::chrono::seconds(5);
  // Number of times that a change is sent: with 1,000 nodes, each message is lost somewhere.
  static constexpr int kTellings = 4;
  static constexpr size_t kLetterBytesMax = 16000;

  // Serves one attempt; the node's ranks are base_rank .. base_rank + workers - 1.
  NodeReporter(std::string host, int base_rank, int workers);

  void started(int rank, pid_t pid, std::string device);
  // Takes Digested, LifeSeen, Ended, Suspended, Resumed and Jumped of own ranks; ignores others.
  void note(Instant now, const Event& event);
  // The detector wants the processes of these ranks sampled; replaces the previous list.
  void want(Instant now, const std::vector<int>& ranks);
  // Ranks whose processes are to be sampled now, sorted.
  std::vector<int> wanted(Instant now) const;
  void heard(uint64_t finding) { heard_ = finding; }
  // The detector has compared all calls of these ranks, which have ended. Returns true if that is
  // new and other ranks are missing: the next message is best sent at once.
  bool judged(const std::vector<int>& ranks);
  // True if all ranks have ended, and judged() has not named each of those that record.
  bool awaits_judgement() const;

  // Returns the message to send now, if one is due or `at_once` is set. Call after each poll.
  std::optional<std::string> message(Instant now, bool at_once = false);

 private:
  // One group's hashes from all polls: nodes that poll at different moments share some.
  struct Hashes {
    std::map<uint64_t, uint64_t> seen;  // By ordinal, from `sent_before` on.
    uint64_t sent = 0;                  // The newest ordinal sent,
    uint64_t sent_before = 0;           // and the newest before that.
  };
  struct Rank {
    pid_t pid = 0;
    std::string device;
    uint64_t version = 0;
    std::optional<RankDigest> digest;
    std::string shape;                     // The digest's.
    std::map<std::string, Hashes> hashes;  // By the group's id.
    std::optional<RankLife> life;
    std::optional<int> code;
    bool is_judged = false;
    int tellings = 0;  // Number of times the digest was sent.
    Instant sent{};    // When it was last sent.
  };

  void on(Instant now, const Digested& event);
  void on(Instant now, const LifeSeen& event);
  void on(Instant now, const Ended& event);
  void on(Instant now, const Suspended& event);
  void on(Instant now, const Resumed& event);
  void on(Instant now, const Jumped& event);
  template <typename Other>
  void on(Instant /*now*/, const Other& /*event*/) {}
  Rank* own(int rank);
  static void gather_hashes(Rank& rank);
  bool is_due(Instant now) const;
  bool is_wanted(Instant now, int rank) const;
  RankNews news_of(Instant now, int rank) const;
  static RankDigest digest_to_send(const Rank& rank);
  void note_sent(Instant now, const RankNews& news);

  const std::string host_;
  const int base_rank_;
  std::vector<Rank> ranks_;
  std::vector<int> wanted_;
  Instant wanted_at_{};
  uint64_t heard_ = 0;
  uint64_t jumps_ = 0;
  bool is_suspended_ = false;
  bool is_urgent_ = false;  // True if the next message must not wait.
  size_t first_ = 0;        // Index of the rank that begins the next message.
  std::optional<Instant> sent_;
};

}  // namespace muster::hang
