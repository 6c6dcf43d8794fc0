// Decides who is to blame for a hang, from what the ranks of a job record about their collectives.
// A pure machine: digests and signs of life in, notices and verdicts out.
//
//   a rank waits            its synchronous call has not ended, or it has a call in flight and is
//                           blocked, or it forms a group
//   it waits for            the members that have not made that call; the peers of messages
//   root                    a rank that others wait for and that waits for nobody
//   victim                  a rank that waits, directly or through others, for a root
//
//   class          evidence                                          verdict
//   exited         the root's process has ended, also with 0         by proof, after two looks
//   signature      another operation, size, type, root or reduction  by proof, at once
//                  at the same ordinal; the majority is right, a tie
//                  shows both camps
//   order          the same calls in another order                   by proof, at once
//   circle         ranks wait for each other over groups or messages by proof, after two looks
//   stopped        the root is stopped (SIGSTOP)                     by time: hang_timeout
//   never_entered  the root is blocked                               by time: hang_timeout
//   busy           the root runs or sleeps, or nothing is known      by time: busy timeout
//   incomplete     all members have made the call, and nothing moves by time: busy timeout; of a
//                                                                    group that forms, at least
//                                                                    busy_min
//
// After Limits::notice_after a notice says who waits for whom, without blame, once for each wait; a
// line follows when it ends. What a rank disproves is withdrawn, and the limit that misjudged it is
// doubled. Two digests of a rank, taken at least Limits::look apart and equal in what matters, are
// "two looks". While the job is suspended or a rank is traced nothing is judged; after that, and
// after a jump of the observer's clock, waits begin anew.
//
// Time is that of the evidence: a wait has lasted from its begin to the older of the newest digests
// of a rank that waits and of one that is late, and what a process does counts from the look that
// first saw it. So digests that are late, lost or in disorder delay a verdict, and make no wrong
// one. A rank that waited for others itself is late only since then. One that is blocked may wait
// for another late one by other means, so it is not judged before that one is, if that one moves.
//
// A circle is proven only of processes that do not compute, since other threads of theirs may still
// make the calls; else it is judged by time.
//
// The first worker that fails ends the watch: it is told whether a mismatch is why. What ranks call
// after that is its consequence. When the last of those that succeed has ended, mismatches are
// judged a last time.
//
// What the worker library finds itself (a failure that it has reported: RankDigest::has_failed)
// gets no second verdict. Missing evidence (ranks without records, unknown signs of life) lowers
// the confidence, and makes no proof.
//
// Semantics: the wait graph of a resource allocation system (Holt 1972, "Some deadlock properties
// of computer systems"); collectives are AND-waits, a receive from any rank an OR-wait.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/detector_events.h"
#include "agent/hang/group_table.h"
#include "agent/hang/limits.h"
#include "agent/hang/mismatch.h"
#include "agent/hang/rank_state.h"
#include "agent/hang/wait_graph.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

class Detector {
 public:
  explicit Detector(const Limits& limits);

  void step(Instant now, const Event& event, std::vector<Effect>& out);
  // When a Tick would do something; an earlier one does nothing.
  Instant next_deadline() const;
  // nullopt: no rank waits.
  const std::optional<Status>& status() const { return status_; }
  // What findings call the group of that id; of an unknown one the id.
  std::string name_of_group(const std::string& id) const { return groups_.name_of(id); }
  bool has_ended(int rank) const { return is_rank(rank) && state(rank).code.has_value(); }

 private:
  struct DirectWait {
    int rank = 0;
    StallKey key;
  };
  // A wait that others have had to bear for a moment, and may become a finding.
  struct Case {
    StallKey key;             // Of a circle: of its first rank.
    std::vector<int> circle;  // Empty: it is none.
    int stall = -1;           // In this evaluation; -1: nobody is named now.
    bool is_certain = false;  // Of a circle.

    std::vector<LateRank> roots;      // As last seen, from here on. By rank.
    std::vector<LateRank> others;     // Roots that are late here too, and belong to other cases.
    Instant seen{};                   // When the newest digest of one that waits was taken.
    std::vector<DirectWait> waiting;  // Of a circle: its ranks, in order.
    std::vector<int> unfinished;
    size_t late = 0;  // Ranks that are late, roots or not.
    Instant since{};
    Instant closed_since{};  // Of a circle: since the last of its ranks waits.
    Instant changed{};       // When it last was otherwise with the ranks that are late.
    Instant shown{};         // Digests have shown it all the time since then.
    ring::Call call;
    int peer = -1;  // Of a message: the rank; -1: any.
    std::string group;

    uint64_t number = 0;  // 0: nothing was said.
    std::optional<Finding> notice;
    std::optional<Finding> verdict;
    bool by_hang_timeout = false;
  };
  struct ToldMismatch {
    uint64_t number = 0;
    GroupKey group;
    uint64_t ordinal = 0;
  };
  // Ranks that wait no longer, though nobody came, and how many calls they had made by then.
  struct GivenUp {
    uint64_t number = 0;
    std::map<int, uint64_t> calls;
  };
  // What speaks against one late rank.
  struct Charge {
    LateRank late;
    Class what = Class::busy;
    bool is_noticed = false;  // It is late for so long that others should know.
    bool is_due = false;
    bool is_proof = false;
    bool moves = false;
    bool defers = false;  // Others that are late and move may be the cause of this.
    Instant start{};
  };

  // ---- events
  void on(Instant now, const Begun& event);
  void on(Instant now, const Digested& event);
  void on(Instant now, const Confirmed& event);
  void on(Instant now, const LifeSeen& event);
  void on(Instant now, const Ended& event);
  void on(Instant now, const Stopping& event);
  void on(Instant now, const Suspended& event);
  void on(Instant now, const Resumed& event);
  void on(Instant now, const Jumped& event);
  void on(Instant now, const Tick& event);
  void learn(const RankDigest& before, const RankDigest& news);
  void begin_anew(Instant now);
  bool is_over() const;  // A rank has failed, or all have ended.
  void end_watch();

  // ---- an evaluation
  void evaluate(Instant now);
  void look_at(const std::vector<int>& ranks);
  bool is_held(Instant now) const;  // By a debugger.
  void update_cases(Instant now, const WaitGraph& graph);
  void update_root_cases(Instant now, const WaitGraph& graph);
  void update_circle(const WaitGraph& graph, const WaitGraph::Circle& circle);
  Case& case_of(const StallKey& key, const std::vector<int>& circle);
  void note_stall(Case& one, const WaitGraph& graph, int stall);
  void note_late(Instant now, Case& one, std::vector<LateRank> roots, std::vector<LateRank> others,
                 size_t late);
  bool is_explained(const StallKey& key) const;
  void note_status(const WaitGraph& graph);

  // ---- the end of a case (detector_cases.cc)
  enum class End : uint8_t { none, well, given_up, gone };
  void close_cases(Instant now);
  bool close(Instant now, Case& one);
  End end_of(const Case& one) const;
  bool has_come(const Case& one, const LateRank& late) const;
  bool has_progressed(const DirectWait& wait) const;
  bool is_over(const DirectWait& wait) const;
  void withdraw(const Case& one, std::vector<int> ranks);
  void note_given_up(const Case& one);
  void note_calls(const RankDigest& digest);  // Of a rank that has given up, maybe.

  // ---- charges (detector_cases.cc)
  void judge(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  void judge_roots(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  void judge_circle(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  void judge_incomplete(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  // False: it is no such case.
  bool judge_halted(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  Charge charge_of(Instant now, const Case& one, const LateRank& late,
                   const WaitGraph& graph) const;
  bool is_needed(const Case& one, const LateRank& late, const WaitGraph& graph) const;
  bool is_proven_exit(const Case& one, const LateRank& late, const WaitGraph& graph) const;
  void note_seen(Case& one, bool is_new) const;
  Instant begin_of(const Case& one) const;
  LimitKey limit_key_of(const Case& one) const;

  // ---- findings (detector_findings.cc)
  void judge_mismatches(Instant now);
  void explain_failure();
  bool is_under_way(const GroupKey& group, uint64_t ordinal) const;
  Finding finding_of(const Mismatch& mismatch, Instant now) const;
  Finding finding_of(const Case& one, const WaitGraph& graph, Duration waited) const;
  Finding finding_of(Instant now, const Case& one, const WaitGraph& graph,
                     const std::vector<Charge>& named) const;
  Finding finding_of_circle(Instant now, const Case& one, const WaitGraph& graph,
                            Duration waited) const;
  Suspect suspect_of(Instant now, int rank, Class what) const;
  void weigh(Instant now, Finding& finding, const Case& one, const WaitGraph& graph,
             const std::vector<Charge>& named) const;
  static Operation operation_of(const Case& one);
  std::string site_of(const DirectWait& wait) const;
  void notify(Case& one, Finding finding);
  void pronounce(Case& one, Finding finding);

  const RankState& state(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  bool is_rank(int rank) const { return rank >= 0 && static_cast<size_t>(rank) < ranks_.size(); }

  const Limits limits_;
  const Duration period_;  // Between two evaluations; waits that are shorter are everyday.
  std::vector<RankState> ranks_;
  GroupTable groups_;
  CallComparison calls_;
  LearntLimits learnt_;
  std::vector<Case> cases_;          // In the order in which they began.
  std::optional<GivenUp> given_up_;  // The newest.
  std::vector<ToldMismatch> mismatches_;
  std::vector<int> looked_at_;
  uint64_t last_number_ = 0;
  std::optional<Status> status_;  // The oldest case.

  bool is_watching_ = false;  // Between Begun and Stopping.
  bool is_suspended_ = false;
  bool is_held_ = false;
  bool has_failure_ = false;  // A worker has failed; the attempt will be stopped.
  bool is_dirty_ = false;     // There is news since the last evaluation.
  Instant evaluated_{};
  Instant anew_{};  // No wait began earlier.

  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster::hang
