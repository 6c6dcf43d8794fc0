// Finds the stragglers, which hold up all other ranks: after a time-out this rank queries the ranks
// that it waited for, then those that they wait for, in any group and call. Otherwise most ranks
// would name a neighbour that is as stuck as they are. State of a rank, and the conclusion:
//
//   does not answer            the process is stopped or out of reach: a straggler
//   is gone                    it ended because of another rank, unless its own death is reported:
//                              query the other members, and the ranks that pass such reports on
//   has made the call, and     query the ranks that it waits for in that call
//     waits in it
//   has not, and waits for     the same: it is held up itself
//     something else
//   has not, and met a         query that rank: this one is about to report the failure
//     failure of another rank
//   has not, otherwise         a straggler
//   has finished the call      it holds up no rank
//
// If ranks wait for each other in a circle, the stragglers are those in another call than most of
// them; all of them, if no call has more ranks than every other. Pure: the answers are parameters,
// and every call starts afresh; straggler_search.h queries.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

// This rank's call that timed out, or met a different one.
struct StragglerQuery {
  std::string group_id = {};
  Lane lane = Lane::host;
  uint64_t number = 0;  // The call's number in its lane; 0: a message.
  // True if this rank's own call is queued behind that one.
  bool is_behind = false;
  bool from_anybody = false;       // Any of the suspects may send the message.
  std::vector<int> suspects = {};  // Ranks of the job that this one waited for.
  int world_size = 0;
  std::vector<int> members = {};       // The group's.
  std::vector<int> messengers = {};    // They pass reports of the suspects' ends on.
  std::chrono::milliseconds limit{0};  // Shown in messages.
  // Time that this rank has waited: older failures did not result from this wait.
  std::chrono::milliseconds waited{0};
};

enum class NoAnswer : uint8_t {
  stopped,  // According to the kernel.
  mute,     // No answer in time.
  gone,     // No process listens there any more.
};

// Each rank's answer, or why there is none.
using ProgressAnswers = std::map<int, std::variant<RankProgress, NoAnswer>>;

// Returns the rank's progress; null: no answer.
inline const RankProgress* progress_of(const ProgressAnswers& answers, int rank) {
  const auto answer = answers.find(rank);
  return answer == answers.end() ? nullptr : std::get_if<RankProgress>(&answer->second);
}

// A call that other ranks wait for.
struct AwaitedCall {
  Lane lane = Lane::host;
  uint64_t number = 0;     // The call's number in its lane; 0: a message.
  std::string label = {};  // "all_reduce 16 of group world"; empty: this rank's own call.
};

struct StragglerFindings {
  struct Straggler {
    // The reason why the rank does not answer; nullopt: it answers, and has not made `awaited`.
    std::optional<NoAnswer> no_answer = {};
    AwaitedCall awaited = {};
    // The number of the rank's last call in the lane of `awaited`; nullopt: it has no such group.
    std::optional<uint64_t> at = {};
    std::string last = {};  // The name of that last call: "barrier".
    // The call that the rank is in, in a circle: "barrier 4 of group world".
    std::string instead = {};
  };
  std::set<int> to_ask;                 // Answers needed next.
  std::map<int, Straggler> stragglers;  // The ranks that hold up all others.
  std::set<int> circle;                 // Otherwise: ranks that wait for each other, none to blame.
  std::map<int, std::string> held_up;   // Suspects that are held up themselves, and in which call.
  bool differs = false;                 // A rank made another call instead.
};

// `own`: this rank's progress. Ignores entries of `answers` that are not needed.
StragglerFindings find_stragglers(int me, const StragglerQuery& question, const RankProgress& own,
                                  const ProgressAnswers& answers);

// Returns the time-out `suspected`, with the ranks that hold up this one, if the findings name any.
Failure describe_stragglers(const Failure& suspected, const StragglerQuery& question,
                            const StragglerFindings& findings, const Members& world);

// Returns the mismatch that blames the members that differ from most, among all that have made the
// call so far; nullopt: none is known to differ. `members`: the group's.
std::optional<Failure> compare_calls(const StragglerQuery& question, const Members& members,
                                     const RankProgress& own, const ProgressAnswers& answers);

}  // namespace muster::worker
