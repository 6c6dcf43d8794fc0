// The judge at the host of a job: turns the nodes' testimonies into evidence, has it judged, and
// packs the verdict for all nodes. Pure.
#include <algorithm>
#include <utility>

#include "agent/report/failure_wire.h"

namespace muster {
namespace {

WorkerEvidence evidence_in_short(const membership::NodeFailure& failure,
                                 const membership::Testimony& node) {
  WorkerEvidence worker;
  WorkerFailure& told = worker.failure;
  told.rank = failure.rank;
  told.local_rank = failure.local_rank;
  told.host = node.host_name;
  told.node_rank = node.node_rank;
  told.status = failure.signal > 0 ? ExitStatus::signaled(failure.signal)
                                   : ExitStatus::exited(std::clamp(failure.exit_code, 1, 255));
  summarize(worker, failure.sentence);
  WorkerSigns& signs = worker.signs;
  signs.rank = failure.rank;
  signs.node_rank = node.node_rank;
  signs.status = told.status;
  signs.at_stop = AtStop::ended;
  signs.ended = failure.at;
  signs.clock_error = std::clamp(failure.at_error, Duration{0}, kClockErrorMax);
  return worker;
}

// A node's report counts only for its own workers, under the name that the job's host knows.
NodeEvidence evidence_of(const membership::Testimony& testimony) {
  NodeEvidence node;
  if (testimony.evidence) {
    const membership::Evidence& told = *testimony.evidence;
    Result<NodeEvidence> read = decode_evidence(told.detail, told.since, told.since_error);
    if (read) node = *std::move(read);
  }
  node.host = testimony.host_name;
  node.node_rank = testimony.node_rank;
  if (node.node_rank != 0) node.detected.clear();  // Only node 0 runs the hang detector.
  std::erase_if(node.workers, [&](const WorkerEvidence& worker) {
    const int local = worker.signs.rank - testimony.base_rank;
    return local < 0 || local >= testimony.workers || worker.failure.rank != worker.signs.rank;
  });
  for (WorkerEvidence& worker : node.workers) {
    worker.signs.node_rank = worker.failure.node_rank = testimony.node_rank;
    worker.failure.host = testimony.host_name;
    worker.failure.local_rank = worker.signs.rank - testimony.base_rank;
  }
  if (!testimony.failure || node.error) return node;
  if (node.workers.empty())
    node.workers.push_back(evidence_in_short(*testimony.failure, testimony));
  return node;
}

// Adds detected culprits that no report lists: a node whose workers only ran until the stop reports
// none of them, but one may still be to blame.
void add_detected(std::vector<NodeEvidence>& nodes,
                  const std::vector<membership::Testimony>& testimonies) {
  std::vector<DetectedCulprit> detected;
  for (const NodeEvidence& node : nodes)
    detected.insert(detected.end(), node.detected.begin(), node.detected.end());
  for (const DetectedCulprit& one : detected) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int local_rank = one.rank - testimonies[i].base_rank;
      const auto is_told = [&](const WorkerEvidence& told) { return told.signs.rank == one.rank; };
      if (local_rank < 0 || local_rank >= testimonies[i].workers ||
          std::ranges::any_of(nodes[i].workers, is_told))
        continue;
      WorkerEvidence& worker = nodes[i].workers.emplace_back();
      worker.signs.rank = worker.failure.rank = one.rank;
      worker.signs.node_rank = worker.failure.node_rank = testimonies[i].node_rank;
      worker.failure.local_rank = local_rank;
      worker.failure.host = testimonies[i].host_name;
      worker.failure.summary_only = true;
      worker.signs.by_stop = true;
    }
  }
}

std::vector<LostNode> lost_nodes(const std::vector<membership::Testimony>& testimonies) {
  std::vector<LostNode> lost;
  for (const membership::Testimony& node : testimonies) {
    if (!node.gone) continue;
    LostNode& one = lost.emplace_back();
    one.node_rank = node.node_rank;
    for (int rank = 0; rank < node.workers; ++rank)
      one.ranks.push_back(node.base_rank + rank);
    one.last_heard = node.last_heard;
    one.gone_by = node.gone_by;
  }
  std::ranges::sort(lost, {},
                    [](const LostNode& one) { return std::pair(one.last_heard, one.node_rank); });
  return lost;
}

// The failure reported first, in short form, in case nothing better is known.
membership::Verdict first_reported(const std::vector<membership::Testimony>& testimonies) {
  const auto first = std::ranges::min_element(
      testimonies, {}, [](const auto& node) { return node.failure ? node.failure->at : kNever; });
  if (first == testimonies.end() || !first->failure) return {};
  const membership::NodeFailure& failure = *first->failure;
  return {failure.rank,      failure.local_rank, first->node_rank, first->host_name,
          failure.exit_code, failure.signal,     failure.sentence, ""};
}

}  // namespace

membership::Judgement judge_testimonies(const std::vector<membership::Testimony>& testimonies) {
  std::vector<NodeEvidence> nodes;
  for (const membership::Testimony& testimony : testimonies)
    nodes.push_back(evidence_of(testimony));
  add_detected(nodes, testimonies);
  JudgedAttempt judged = judge_attempt(nodes, lost_nodes(testimonies));
  for (const membership::Testimony& node : testimonies) {
    if (node.gone || node.evidence || node.failure) continue;
    for (int rank = 0; rank < node.workers; ++rank)
      judged.stopped_elsewhere.push_back(node.base_rank + rank);
  }
  for (const WorkerFailure& failure : judged.failures)
    std::erase(judged.stopped_elsewhere, failure.rank);
  membership::Judgement judgement;
  judgement.by_departure = judged.lost_node.has_value() && !judged.error;
  judgement.verdict = first_reported(testimonies);
  membership::Verdict& verdict = judgement.verdict;
  if (judged.error) {
    verdict.node_rank = judged.error_node_rank;
    verdict.host_name = judged.error_host;
    verdict.exit_code = static_cast<int>(judged.error->code);
    verdict.signal = 0;
  } else if (judged.culprit) {
    const WorkerFailure& culprit = judged.the_culprit();
    verdict.rank = culprit.rank;
    verdict.local_rank = culprit.local_rank;
    verdict.node_rank = culprit.node_rank;
    verdict.host_name = culprit.host;
    verdict.exit_code = culprit_code(judged);
    verdict.signal = culprit.status.signal();
  } else {
    return judgement;
  }
  verdict.sentence = verdict_sentence(judged);
  verdict.detail = encode_verdict(judged);
  judgement.brief = encode_verdict(judged, VerdictLength::line);
  return judgement;
}

JudgedAttempt verdict_in_short(const membership::Verdict& verdict) {
  membership::Testimony node;
  node.host_name = verdict.host_name;
  node.node_rank = verdict.node_rank;
  const WorkerEvidence worker = evidence_in_short({.rank = verdict.rank,
                                                   .local_rank = verdict.local_rank,
                                                   .exit_code = verdict.exit_code,
                                                   .signal = verdict.signal,
                                                   .sentence = verdict.sentence},
                                                  node);
  JudgedAttempt judged;
  judged.failures = {worker.failure};
  judged.failures[0].part = Part::culprit;
  judged.failures[0].sentence = worker.cause.sentence;
  judged.culprit = 0;
  judged.cause = worker.cause;
  return judged;
}

}  // namespace muster
