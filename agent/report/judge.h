// Which worker's failure explains an attempt: one pure function from what the workers left behind
// to the verdict. It is called once for an attempt, when everything that the attempt has printed is
// read: by the agent of a job of one node, by the job's host for all nodes of another. The restart
// line, the last screen, result.json, the events and the other nodes get its answer; nothing else
// chooses.
//
// A process that fails often looks later than its victims do: it raises and hangs in its teardown,
// or its memory takes a second to free, while the others die at once of the connections that it
// closed. So the first observed death only begins the stop, and these rules decide, in this order:
//
//   a  A worker that blames another one, or a lost connection, is a victim while there is a failure
//      that can be its cause.
//   b  A fatal signal that muster did not send comes before an exit code. SIGPIPE, and SIGABRT
//      after words of blame, are a victim's.
//   c  A recorded exception counts from when it was recorded, and comes before a silent exit of the
//      same moment. A worker that muster's stop ended has failed only if an exception of its own
//      was recorded before that stop; and, where only its last words say so, only if nobody else
//      has failed of an error of its own.
//   d  The order of deaths decides last.
//   e  Where all are victims, the rank that they name counts, else the one that left first with 0,
//      up to 2 s after they lost it, else the node that was lost, else the first of them.
//   f  What cannot be told apart, within a millisecond, is simultaneous.
//
// A failure that began only after muster's stop explains nothing: a worker may well crash of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/process/exit_status.h"
#include "agent/report/last_words.h"
#include "rendezvous/base/time.h"

namespace muster {

// What the judge reads of one worker. Instants are in one clock for all workers of an attempt.
struct WorkerSigns {
  int rank = 0;
  int node_rank = 0;
  std::optional<ExitStatus> status;  // None: it was not reaped, or its node could not tell.
  AtStop at_stop = AtStop::unknown;
  bool by_stop = false;   // Its end is what muster's stop causes.
  bool declared = false;  // The agent itself called it failed.

  Instant ended{};  // When its end, or the agent's word about it, was observed.
  int order = 0;    // Among the ends of its node, as the kernel reported them.
  // When its own error was recorded, where one was; for a worker that the stop ended, before it.
  std::optional<Instant> raised;
  Duration raised_error{};  // How exact that is.
  // `raised` is only what a worker printed last that still ran when the stop came. It may have got
  // over that error, for all its words say.
  bool presumed = false;
  std::optional<Instant> active_until;  // Its last output.
  Duration clock_error{};  // Of every instant above, where its node's clock is another.

  std::optional<Blame> blame;  // By its words, its error file or the worker library.

  friend bool operator==(const WorkerSigns&, const WorkerSigns&) = default;
};

// Whether its end, or its error, may matter to the judge; not of one that only ran until the stop.
inline bool has_something_to_tell(const WorkerSigns& signs) {
  return signs.declared || signs.raised || (signs.status && !signs.by_stop);
}

// A node that was lost while the attempt ran, in the clock of the host.
struct LostNode {
  int node_rank = 0;
  std::vector<int> ranks;
  Instant last_heard{};
  Instant gone_by{};  // When its connection broke, or its lease was over.
};

enum class Part : uint8_t {
  bystander,  // It succeeded, or muster's stop ended it.
  culprit,
  simultaneous,  // It cannot be told whether it or the culprit was first.
  failed_later,  // By itself, after the culprit.
  victim,        // It blames another one.
  crashed,       // While it was being stopped.
};

// What decided. The names are the values in result.json.
enum class Reason : uint8_t {
  only_failure,  // Nothing else failed by itself.
  fatal_signal,  // Rule b.
  raised_first,  // Rule c.
  died_first,    // Rule d.
  named,         // Rule e, from here on: its victims name it,
  left_early,    // it exited with 0 while the others needed it,
  node_lost,     // its node was lost,
  first_victim,  // or nothing that failed can be their cause.
};

struct AttemptVerdict {
  std::optional<size_t> culprit;  // An index into the workers. None: `lost`, or nothing failed.
  std::optional<size_t> lost;     // An index into the lost nodes.
  Reason reason = Reason::only_failure;
  std::vector<Part> parts;  // Of each worker.

  friend bool operator==(const AttemptVerdict&, const AttemptVerdict&) = default;
};

// `lost`: the first one that was lost stands first.
AttemptVerdict judge(const std::vector<WorkerSigns>& workers,
                     const std::vector<LostNode>& lost = {});

// "fatal_signal", "failed_later": the values in result.json.
const char* reason_name(Reason reason);
const char* part_name(Part part);

}  // namespace muster
