// What a node without the hang detector says of its ranks to the node that has it, and when. A pure
// machine: what NodeWatch sees in, messages out.
//
//   at each look (kLookEvery)   if a rank of the node has waited in a call for kPendingAfter, if
//                               the detector wants one looked at, or at the end of a rank
//   else each second            so that late ranks are known, and hashes are compared
//
// A message holds all ranks, but for digests that were sent within a second, and kTellings times:
// of these it says that they still hold. What exceeds kLetterBytesMax is sent with the next ones.
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
  // Of 1,000 nodes some lose each message: what changes is said so often in a row.
  static constexpr int kTellings = 4;
  static constexpr size_t kLetterBytesMax = 16000;

  // Of an attempt: the node's ranks are base_rank .. base_rank + workers - 1.
  NodeReporter(std::string host, int base_rank, int workers);

  void started(int rank, pid_t pid, std::string device);
  // Digested, LifeSeen, Ended, Suspended, Resumed and Jumped, of own ranks; others are ignored.
  void note(Instant now, const Event& event);
  // The detector wants the processes of these ranks looked at; replaces the list before.
  void want(Instant now, const std::vector<int>& ranks);
  // Ranks whose processes are to be looked at now, by rank.
  std::vector<int> wanted(Instant now) const;
  void heard(uint64_t finding) { heard_ = finding; }
  // The detector has compared all calls of these ranks, which have ended. Whether that is news and
  // others are missing: the next message is best sent at once.
  bool judged(const std::vector<int>& ranks);
  // Whether all ranks have ended, and judged() has not named each of those that record.
  bool awaits_judgement() const;

  // To be called after each look: the message to send now, if one is due. `at_once`: one is, since
  // the detector asks for it.
  std::optional<std::string> message(Instant now, bool at_once = false);

 private:
  // Of one group: what all looks have shown since, so that nodes which look at different moments
  // have hashes of the same calls.
  struct Hashes {
    std::map<uint64_t, uint64_t> seen;  // By ordinal, from `sent_before` on.
    uint64_t sent = 0;                  // The newest in the last message that had newer ones,
    uint64_t sent_before = 0;           // and in the one before that.
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
    int tellings = 0;  // How often the digest was sent.
    Instant sent{};    // When it was, last.
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
  bool is_urgent_ = false;  // There is news that must not wait.
  size_t first_ = 0;        // With which rank the next message begins.
  std::optional<Instant> sent_;
};

}  // namespace muster::hang
