// Decides which ranks are to blame for a hang, from what the ranks of a job record about their
// collectives. A pure machine: digests and process states in, notices and verdicts out.
//
//   a rank waits            its synchronous call has not ended, or it has a call in flight and is
//                           blocked, or it forms a group
//   it waits for            the members that have not made that call; the peers of messages
//   root                    a rank that others wait for and that waits for no rank
//   victim                  a rank that waits, directly or through others, for a root
//
//   class          evidence                                          verdict
//   exited         the root's process has ended, also with 0         by proof, after two digests
//   signature      another operation, size, type, root or reduction  by proof, at once
//                  at the same ordinal; the majority is right, a tie
//                  shows all camps
//   order          the same calls in another order                   by proof, at once
//   circle         ranks wait for each other over groups or messages by proof, after two digests
//   stopped        the root is stopped (SIGSTOP)                     by time: hang_timeout
//   never_entered  the root is blocked                               by time: hang_timeout
//   busy           the root runs, sleeps or polls, or nothing is     by time: busy timeout
//                  known; never while its user types
//   incomplete     all members have made the call, and nothing moves by time: busy timeout, at
//                                                                    least forming_min while a
//                                                                    group forms
//
// "Two digests" are those of a waiting rank, at least Limits::look apart and equal in what matters.
// After Limits::notice_after a notice names the waiting and the late ranks without blame, once for
// each wait; a line follows when the wait ends. A verdict that a rank disproves is withdrawn, and
// the limit that misjudged it is doubled. Nothing is judged while the job is suspended or a
// debugger traces a rank; after that, and after a jump of the observer's clock, waits begin anew.
//
// Durations are those of the evidence: a wait lasts from its start to the older of the newest
// digests of a waiting and of a late rank, and a process state counts from the sample that first
// saw it. So late, lost or reordered digests delay a verdict but never make a wrong one. A rank
// that waited for others itself is late only since that wait. A blocked rank may wait for another
// late one by other means, so it is not judged while that one moves within its own limit.
//
// A circle is proof only if its processes do not compute, since other threads of theirs may still
// make the calls; else it is judged by time.
//
// The first failure of a worker ends the watch, and Explained says if a mismatch caused it: what
// ranks call after that is its consequence. When the last of the workers that succeed has ended,
// mismatches are judged a last time. A failure that the worker library has reported
// (RankDigest::has_failed) gets no second verdict. Missing evidence (ranks without records, unknown
// process states) lowers the confidence and is never proof.
//
// Semantics: the wait graph of a resource allocation system (Holt 1972, "Some deadlock properties
// of computer systems"); collectives are AND-waits, a receive from any rank an OR-wait.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/detector_events.h"
#include "agent/hang/group_table.h"
#include "agent/hang/key_waits.h"
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
  // Returns when the next Tick is due; an earlier one does nothing.
  Instant next_deadline() const;
  // nullopt: no rank waits.
  const std::optional<Status>& status() const { return status_; }
  // Returns the group's name in findings; its id if unknown.
  std::string name_of_group(const std::string& id) const { return groups_.name_of(id).text; }
  bool has_ended(int rank) const { return is_rank(rank) && state(rank).code.has_value(); }
  // Returns the rank's process that records, and the one that waits below it; 0: unknown.
  std::array<pid_t, 2> processes_of(int rank) const {
    if (!is_rank(rank)) return {};
    return {state(rank).digest ? state(rank).digest->process : 0, state(rank).life.task.id};
  }

 private:
  struct DirectWait {
    int rank = 0;
    StallKey key;
  };
  // A wait that has lasted for a moment and may become a finding.
  struct Case {
    StallKey key;             // A circle's is its first rank's.
    std::vector<int> circle;  // Empty: not a circle.
    int stall = -1;           // Index in this evaluation; -1: not seen in it.
    bool is_certain = false;  // Circles only.

    std::vector<LateRank> roots;      // By rank. As last seen, like all below.
    std::vector<LateRank> others;     // Roots that are late here but belong to other cases.
    Instant seen{};                   // Time of the newest digest of a waiting rank.
    std::vector<DirectWait> waiting;  // A circle's ranks, in order.
    std::vector<int> unfinished;
    size_t late = 0;  // Number of late ranks, roots or not.
    Instant since{};
    Instant closed_since{};  // Circles only: when the last of its ranks began to wait.
    Instant changed{};       // When the set of late ranks last changed.
    Instant shown{};         // All digests since then have shown the wait.
    ring::Call call;
    int peer = -1;  // Messages only: the peer's rank; -1: any.
    GroupName group;

    uint64_t number = 0;  // 0: nothing reported yet.
    std::optional<Finding> notice;
    std::optional<Finding> verdict;
    bool by_hang_timeout = false;
  };
  struct ToldMismatch {
    uint64_t number = 0;
    GroupKey group;
    uint64_t ordinal = 0;
  };
  // Ranks whose wait ended though no late rank came, and how many calls they had made by then.
  struct GivenUp {
    uint64_t number = 0;
    std::map<int, uint64_t> calls;
  };
  // The evidence against one late rank.
  struct Charge {
    LateRank late;
    Class what = Class::busy;
    bool is_noticed = false;  // Late for Limits::notice_after.
    bool is_due = false;
    bool is_proof = false;
    bool moves = false;
    bool defers = false;  // Late ranks that move may be the cause.
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
  void on(Instant now, const KeysAwaited& event);
  void on(Instant now, const Tick& event);
  void begin_anew(Instant now);
  bool is_over() const;  // A rank has failed, or all have ended.
  void end_watch();

  // ---- an evaluation
  void evaluate(Instant now);
  void look_at(const std::vector<int>& ranks);
  bool is_held(Instant now) const;  // A debugger traces a rank.
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
  void note_calls(const RankDigest& digest);

  // ---- charges (detector_cases.cc)
  void judge(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  void judge_roots(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  void judge_circle(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  void judge_incomplete(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  // Returns false if no rank in the call is stopped.
  bool judge_halted(Instant now, Case& one, const WaitGraph& graph, bool may_judge);
  Charge charge_of(Instant now, const Case& one, const LateRank& late,
                   const WaitGraph& graph) const;
  bool is_needed(const Case& one, const LateRank& late, const WaitGraph& graph) const;
  bool is_proven_exit(const Case& one, const LateRank& late, const WaitGraph& graph) const;
  void note_seen(Case& one, bool is_new) const;
  Instant begin_of(const Case& one) const;

  // ---- findings (detector_cases.cc)
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
  const Duration period_;  // Time between two evaluations; shorter waits are normal.
  std::vector<RankState> ranks_;
  GroupTable groups_;
  CallComparison calls_;
  LearntLimits learnt_;
  std::vector<Case> cases_;          // Oldest first.
  std::optional<GivenUp> given_up_;  // The newest.
  std::vector<ToldMismatch> mismatches_;
  KeyWaits keys_;
  std::vector<int> looked_at_;
  uint64_t last_number_ = 0;
  std::optional<Status> status_;  // The oldest case's.

  bool is_watching_ = false;  // Between Begun and Stopping.
  bool is_suspended_ = false;
  bool is_held_ = false;
  bool has_failure_ = false;  // A worker has failed; the attempt will be stopped.
  bool is_dirty_ = false;     // Something has changed since the last evaluation.
  Instant evaluated_{};
  Instant anew_{};  // No wait counts from before this.

  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster::hang
