// Decides which worker's failure explains an attempt: one pure function from what the workers left
// behind to the verdict. Called once per attempt, after all its output has been read: by the agent
// in a job with one node, otherwise by the job's host for all nodes. The restart line, the last
// screen, result.json, the events and the other nodes use its answer; no other code chooses a
// culprit. A failing process often dies later than its victims: it raises and hangs in its
// teardown, or takes a second to free its memory, while the others die at once because it closed
// its connections. So the first observed death only starts the stop; these rules decide, in order:
//   a  A worker that blames another rank or a lost connection is a victim while there is a failure
//      that can be its cause.
//   b  A fatal signal that muster did not send comes before an exit code. SIGPIPE, and SIGABRT
//      after a blaming message, mean a victim.
//   c  A recorded exception counts from when it was recorded, and comes before a silent exit of the
//      same moment. A worker that muster's stop ended has failed only if an exception of its own
//      was recorded before that stop; if its last output is the only record, then only if no other
//      worker failed with an error of its own.
//   d  Otherwise the order of deaths decides.
//   e  If all are victims, the culprit is the rank that they name, else the lost node if its loss
//      can explain the first of them, else the rank that left first (that exited with 0, or had
//      destroyed its process groups), up to 2 s after they failed, else the first of them.
//   f  Failures within a millisecond, or within the error of their times, are simultaneous.
//   g  Before all these: if the hang detector found ranks whose calls did not match the others', or
//      a hang for which it made a rank fail, the culprit is the first to end of those that it
//      blames. Not if the worker library had reported a failure of its own before that.
//   h  If rule e would only name the first victim, of a time-out that blames no rank, the culprit
//      is the rank that the hang detector saw it wait for, if one such rank did not wait itself.
//
// A failure that began only after muster's stop explains nothing: the stop may have caused it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/process/exit_status.h"
#include "agent/report/last_words.h"
#include "rendezvous/base/time.h"

namespace muster {

// The rule that decided; named as in result.json, like Part.
enum class Reason : uint8_t {
  only_failure,  // Nothing else failed by itself.
  fatal_signal,  // Rule b.
  raised_first,  // Rule c.
  died_first,    // Rule d.
  named,         // Rule e, from here on: its victims name it,
  left_early,    // it exited with 0, or destroyed its groups, while the others needed it,
  node_lost,     // its node was lost,
  first_victim,  // or no failure can be the cause of theirs.
  mismatch,      // Rule g: calls that do not match,
  hang,          // or a hang for which a rank was made to fail; rule h: a time-out in one.
};

// The judge's input on one worker. All instants of an attempt are on one clock.
struct WorkerSigns {
  int rank = 0;
  int node_rank = 0;
  std::optional<ExitStatus> status;  // nullopt: it was not reaped, or its node does not know.
  AtStop at_stop = AtStop::unknown;
  bool by_stop = false;       // True if muster's stop explains its end.
  bool declared = false;      // True if the agent itself declared it failed.
  bool lost_console = false;  // See HostEvidence.

  Instant ended{};  // Time at which its end, or the agent's declaration, was observed.
  int order = 0;    // Position among the ends of its node, as the kernel reported them.
  // Time of its own recorded error, if any; only before the stop if the stop ended the worker.
  std::optional<Instant> raised;
  Duration raised_error{};  // Uncertainty of `raised`.
  // True if `raised` is only in the last output of a worker that ran until the stop: it may have
  // recovered from that error.
  bool presumed = false;
  // Time at which it destroyed its process groups, if it did without an error and still ran.
  std::optional<Instant> left;
  std::optional<Instant> active_until;  // Its last output.
  Duration clock_error{};  // Uncertainty of every instant above, if its node has another clock.

  std::optional<Blame> blame;  // That of its messages, its error file or the worker library.
  std::optional<Instant> told_by_library;  // Time of the worker library's report, if any.

  friend bool operator==(const WorkerSigns&, const WorkerSigns&) = default;
};

// True if its end or error may matter to the judge; false if it only ran until the stop.
inline bool has_something_to_tell(const WorkerSigns& signs) {
  return signs.declared || signs.raised || (signs.status && !signs.by_stop);
}

// A node that was lost while the attempt ran, on the clock of the job's host.
struct LostNode {
  int node_rank = 0;
  std::vector<int> ranks;
  Instant last_heard{};
  Instant gone_by{};  // Time at which its connection broke or its lease expired.
};

// A rank that the hang detector names as the cause of the attempt's end: it made another call than
// the others when the first worker failed (or belongs to one of two camps, and it is unknown which
// is right), or others wait for it and it will not come. The judge does not read the words.
struct DetectedCulprit {
  int rank = 0;
  bool is_mismatch = false;
  std::string sentence = {};  // Follows "rank 3 ".
  std::string remedy = {};
  std::optional<Instant> failed = {};  // Time at which a rank was made to fail for it, if any.
  // Ranks that waited for it. If any, no rank was made to fail, and only rule h applies.
  std::vector<int> waiting = {};

  friend bool operator==(const DetectedCulprit&, const DetectedCulprit&) = default;
};

enum class Part : uint8_t {
  bystander,  // It succeeded, or muster's stop ended it.
  culprit,
  simultaneous,  // It or the culprit failed first; that cannot be determined.
  failed_later,  // It failed by itself, after the culprit.
  victim,        // It blames another rank.
  crashed,       // It failed while it was being stopped.
};

struct AttemptVerdict {
  std::optional<size_t> culprit;  // Index into the workers; nullopt: `lost`, or nothing failed.
  std::optional<size_t> lost;     // Index into the lost nodes.
  Reason reason = Reason::only_failure;
  std::vector<Part> parts;  // By worker.
  // By worker: the index of the finding of the hang detector that explains its part.
  std::vector<std::optional<size_t>> findings;

  friend bool operator==(const AttemptVerdict&, const AttemptVerdict&) = default;
};

// `lost`: in order of loss.
AttemptVerdict judge(const std::vector<WorkerSigns>& workers,
                     const std::vector<LostNode>& lost = {},
                     const std::vector<DetectedCulprit>& detected = {});

const char* reason_name(Reason reason);
const char* part_name(Part part);

}  // namespace muster
