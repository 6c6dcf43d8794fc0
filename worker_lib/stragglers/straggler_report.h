// Finds the stragglers, which hold up all other ranks: after a time-out this rank asks the ranks
// that it waited for where they are, and those that they wait for in turn, in any group and call.
// Without asking, most ranks would name a neighbour that is as stuck as they are.
//
// What a rank that is waited for may turn out to be:
//
//   does not answer            the process is stopped or out of reach: a straggler
//   is gone                    it ended because of another rank, unless there is news that it died
//                              on its own: the other members are asked, and the ranks that
//                              such news comes through
//   has made the call, and     what it waits for in that call is asked next
//     waits in it
//   has not, and waits for     the same: it is held up itself
//     something else
//   has not, and met a         that rank is asked next: this one is about to report the failure
//     failure of another rank
//   has not, otherwise         a straggler
//   has finished the call      it holds up no rank
//
// If ranks wait for each other in a circle, the stragglers are those in another call than most of
// them; all of them, if no call has more ranks than every other. Pure: the answers are parameters,
// and every call starts afresh; straggler_search.h asks.
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

// The call of this rank that timed out, or met a different one.
struct StragglerQuery {
  std::string group_id;
  Lane lane = Lane::host;
  uint64_t number = 0;  // Of the call in its lane; 0: a message.
  // This rank's own call is queued behind that one in its lane.
  bool is_behind = false;
  bool from_anybody = false;  // The message may come from any of the suspects.
  std::vector<int> suspects;  // The ranks of the job that this one waited for.
  int world_size = 0;
  std::vector<int> members;            // Of the group.
  std::vector<int> messengers = {};    // Pass on the news of the suspects' ends to this rank.
  std::chrono::milliseconds limit{0};  // For messages.
  // How long this rank has waited so far: older failures did not result from this wait.
  std::chrono::milliseconds waited{0};
};

enum class NoAnswer : uint8_t {
  stopped,  // The kernel says so.
  mute,     // No answer in time.
  gone,     // No process listens there any more.
};

// By rank: its answer, or why there is none.
using ProgressAnswers = std::map<int, std::variant<RankProgress, NoAnswer>>;

// The rank's progress; null: it has not answered.
inline const RankProgress* progress_of(const ProgressAnswers& answers, int rank) {
  const auto answer = answers.find(rank);
  return answer == answers.end() ? nullptr : std::get_if<RankProgress>(&answer->second);
}

struct StragglerFindings {
  struct Straggler {
    // Why it does not answer; nullopt: it has not made a call that another rank waits for.
    std::optional<NoAnswer> no_answer = {};
    Lane lane = Lane::host;           // Of that call;
    uint64_t number = 0;              // 0: a message.
    std::string call = {};            // "all_reduce 16 of group world"; empty: this rank's own.
    std::optional<uint64_t> at = {};  // The last call that it made there,
    std::string last = {};            // and its name; none: it has no such group.
    std::string instead = {};         // Where it is in a circle: "barrier 4 of group world".
  };
  std::set<int> to_ask;                 // Needed, and not heard from yet.
  std::map<int, Straggler> stragglers;  // They hold up all others.
  std::set<int> circle;                 // Else: ranks that wait for each other, none to blame.
  std::map<int, std::string> kept;      // By suspect that is held up itself: by which call.
  bool differs = false;                 // A rank made another call in place of this one.
};

// `own`: this rank's progress. Entries of `answers` that are not needed are ignored.
StragglerFindings find_stragglers(int me, const StragglerQuery& question, const RankProgress& own,
                                  const ProgressAnswers& answers);

// The time-out `suspected`, with the ranks that hold up this one, as far as the findings name them.
Failure describe_stragglers(const Failure& suspected, const StragglerQuery& question,
                            const StragglerFindings& findings, const Members& world);

// The mismatch with the members that called something else than most, of all that have made the
// call so far; nullopt: none is known to differ. `members`: of the group.
std::optional<Failure> compare_calls(const StragglerQuery& question, const Members& members,
                                     const RankProgress& own, const ProgressAnswers& answers);

}  // namespace muster::worker
