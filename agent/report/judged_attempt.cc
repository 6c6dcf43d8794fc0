#include "agent/report/judged_attempt.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

struct Seen {
  const NodeEvidence* node = nullptr;
  const WorkerEvidence* worker = nullptr;
};

std::vector<Seen> in_order(const std::vector<NodeEvidence>& nodes) {
  std::vector<Seen> all;
  for (const NodeEvidence& node : nodes) {
    for (const WorkerEvidence& worker : node.workers)
      all.push_back({&node, &worker});
  }
  std::ranges::sort(all, {}, [](const Seen& seen) {
    const WorkerSigns& signs = seen.worker->signs;
    return std::tuple(signs.ended, signs.node_rank, signs.order, signs.rank);
  });
  return all;
}

// True for the workers that a report lists: the culprit and all that did not succeed.
bool is_shown(const WorkerSigns& signs, Part part) {
  if (part == Part::culprit) return true;
  return signs.status && (part != Part::bystander || !signs.status->success());
}

std::vector<int> victims_of(const std::vector<Seen>& all, const AttemptVerdict& verdict) {
  std::vector<int> ranks;
  for (size_t i = 0; i < all.size(); ++i) {
    if (verdict.parts[i] == Part::victim) ranks.push_back(all[i].worker->signs.rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

bool is_told_of_mismatch(const std::vector<Seen>& all, int rank) {
  return std::ranges::any_of(all, [rank](const Seen& seen) {
    const WorkerSigns& signs = seen.worker->signs;
    return signs.rank == rank && signs.blame && signs.blame->about == Blame::About::mismatch;
  });
}

// The culprit's own end looks harmless; the failure is what it did to the others.
void tell_what_others_say(JudgedAttempt& judged, const std::vector<Seen>& all,
                          const AttemptVerdict& verdict) {
  const bool left =
      judged.reason == Reason::left_early || judged.the_culprit().status == ExitStatus::exited(0);
  const bool mismatched =
      judged.witness && is_told_of_mismatch(all, judged.failures[*judged.witness].rank);
  const std::vector<int> victims = victims_of(all, verdict);
  const std::string others = ranks_text(victims);
  judged.cause.kind = FailureClass::user;
  if (left) {
    const bool has_ended = judged.the_culprit().status == ExitStatus::exited(0);
    judged.cause.sentence =
        fmt::format("{} while {} still needed it",
                    has_ended ? "exited with 0" : "destroyed its process groups", others);
    judged.cause.remedy =
        "all ranks must make the same collective calls: compare how many steps each one does";
  } else if (mismatched) {
    judged.cause.sentence = "called something else than " + others;
    judged.cause.remedy.clear();
  } else {
    judged.cause.sentence = fmt::format("kept {} waiting until {} gave up", others,
                                        victims.size() == 1 ? "it" : "they");
    judged.cause.remedy.clear();
  }
}

void name_witness(JudgedAttempt& judged) {
  const int culprit = judged.the_culprit().rank;
  for (size_t i = 0; i < judged.failures.size() && !judged.witness; ++i) {
    const WorkerFailure& failure = judged.failures[i];
    if (failure.part == Part::victim && failure.rank != culprit) judged.witness = i;
  }
}

Cause cause_from(const DetectedCulprit& one) {
  Cause cause;
  cause.kind = one.is_mismatch ? FailureClass::user : FailureClass::stuck;
  cause.sentence = one.sentence;
  cause.remedy = one.remedy;
  return cause;
}

// Adds that the store was full, if the culprit reports a lost connection and blames no rank.
void explain_by_store(JudgedAttempt& judged, const std::vector<NodeEvidence>& nodes,
                      const std::vector<WorkerSigns>& signs, const AttemptVerdict& verdict) {
  if (!verdict.culprit || !is_one_of(verdict.reason, {Reason::first_victim, Reason::only_failure}))
    return;
  const std::optional<Blame>& blame = signs[*verdict.culprit].blame;
  if (!blame || !blame->ranks.empty()) return;
  for (const NodeEvidence& node : nodes) {
    if (!node.store_full) continue;
    judged.cause.sentence += "; " + *node.store_full;
    judged.cause.remedy = "give a larger --store-limit, or keep large values out of the store";
  }
}

std::vector<WorkerSigns> signs_of(const std::vector<Seen>& all) {
  std::vector<WorkerSigns> signs;
  for (const Seen& seen : all)
    signs.push_back(seen.worker->signs);
  return signs;
}

}  // namespace

void summarize(WorkerEvidence& worker, std::string sentence) {
  const ExitStatus& status = worker.failure.status;
  const bool killed = status.kind == ExitStatus::Kind::signaled;
  worker.failure.summary_only = true;
  worker.cause.kind = killed ? FailureClass::signal : FailureClass::user;
  worker.cause.sentence = sentence.empty() ? describe(status) : std::move(sentence);
}

JudgedAttempt judge_attempt(const std::vector<NodeEvidence>& nodes,
                            const std::vector<LostNode>& lost) {
  JudgedAttempt judged;
  std::vector<DetectedCulprit> detected;
  for (const NodeEvidence& node : nodes) {
    detected.insert(detected.end(), node.detected.begin(), node.detected.end());
    if (!node.error || judged.error) continue;
    judged.error = node.error;
    judged.error_host = node.host;
    judged.error_node_rank = node.node_rank;
  }
  const std::vector<Seen> all = in_order(nodes);
  const std::vector<WorkerSigns> signs = signs_of(all);
  const AttemptVerdict verdict = judge(signs, lost, detected);
  judged.reason = verdict.reason;
  if (verdict.lost) judged.lost_node = lost[*verdict.lost].node_rank;
  bool is_awaited = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const WorkerEvidence& worker = *all[i].worker;
    if (!is_shown(worker.signs, verdict.parts[i])) continue;
    const std::optional<size_t> finding = verdict.findings[i];
    const Cause cause = finding ? cause_from(detected[*finding]) : worker.cause;
    if (verdict.culprit == i) {
      judged.culprit = judged.failures.size();
      judged.cause = cause;
      is_awaited = finding && !detected[*finding].waiting.empty();
    }
    WorkerFailure& failure = judged.failures.emplace_back(worker.failure);
    failure.part = verdict.parts[i];
    failure.stopped_by_muster = worker.signs.by_stop;
    failure.sentence = cause.sentence;
    failure.exception = cause.exception;
    judged.attempt = failure.attempt;
  }
  if (judged.reason == Reason::named || judged.reason == Reason::left_early) {
    name_witness(judged);
    tell_what_others_say(judged, all, verdict);
  }
  if (is_awaited) name_witness(judged);
  explain_by_store(judged, nodes, signs, verdict);
  return judged;
}

void apply_judged(JobReport& report, const JudgedAttempt& judged) {
  static_cast<AttemptFailures&>(report) = judged;
}

}  // namespace muster
