// Who keeps all others: after a time-out this rank asks those whom it waited for where they are,
// and those whom they wait for in turn, whatever the group and the call. Without asking, most ranks
// would name a neighbour that is as stuck as they are.
//
// What a rank that is waited for may turn out to be:
//
//   does not answer            the process is stopped or out of reach: it keeps the others
//   is gone                    it ended because of another rank, unless there is news that it died
//                              of itself: the other members are asked
//   has come to the call, and  what it waits for in that call is asked next
//     waits in it
//   has not come, and waits    the same: it is kept itself
//     for something else
//   has not come, and met a    that one is asked next: this rank is about to say so
//     failure of another rank
//   has not come               it keeps the others
//   is through with the call   it keeps nobody
//
// Where ranks wait for each other in a circle, those keep the others that are not where most of
// them are; all of them, where nobody can tell. Pure: what was heard is handed in,
// and the whole is worked out anew; straggler_search.h asks.
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

// What ran out of time, or met another call, on this rank.
struct StragglerQuery {
  std::string group_id;
  Lane lane = Lane::host;
  uint64_t number = 0;  // Of the call in its lane; 0: a message.
  // This rank's own call is behind that one in its lane.
  bool is_behind = false;
  bool from_anybody = false;  // The message may come from any of the suspects.
  std::vector<int> suspects;  // Whom this rank waited for, ranks of the job.
  int world_size = 0;
  std::vector<int> members;            // Of the group.
  std::chrono::milliseconds limit{0};  // For messages.
  // How long this rank has waited by now: what is older has not come of this wait.
  std::chrono::milliseconds waited{0};
};

enum class NoAnswer : uint8_t {
  stopped,  // The kernel says so.
  mute,     // Nothing came in time.
  gone,     // Nobody listens there any more.
};

// By rank: what it said, or that it said nothing.
using ProgressAnswers = std::map<int, std::variant<RankProgress, NoAnswer>>;

struct StragglerFindings {
  struct Straggler {
    // Why it does not answer; else it has not come to what somebody waits for.
    std::optional<NoAnswer> no_answer;
    std::string group_id;  // Of that call;
    Lane lane = Lane::host;
    uint64_t number = 0;         // 0: a message.
    std::string call;            // "all_reduce 16 of group world"; empty: this rank's own.
    std::optional<uint64_t> at;  // The last call that it made there,
    std::string last;            // and its name; none: it has no such group.
    std::string instead;         // Where it is in a circle: "barrier 4 of group world".
    friend bool operator==(const Straggler&, const Straggler&) = default;
  };
  std::set<int> to_ask;                 // Not heard of yet, and needed.
  std::map<int, Straggler> stragglers;  // Those who keep all others.
  std::set<int> circle;                 // Else: those who wait for each other, nobody knows why.
  std::map<int, std::string> kept;      // By suspect that is kept itself: in what.
  bool differs = false;                 // Somebody made another call in this one's place.
};

// `own`: where this rank is. What is not needed of `answers` is not looked at.
StragglerFindings find_stragglers(int me, const StragglerQuery& question, const RankProgress& own,
                                  const ProgressAnswers& answers);

// The time-out `suspected`, with who keeps this rank, as far as the findings say so.
Failure describe_stragglers(const Failure& suspected, const StragglerQuery& question,
                            const StragglerFindings& findings, const Members& world);

// Who of the members called something else than most: a mismatch, told from all that have come to
// the call by now; nothing: nobody that is known. `members`: of the group.
std::optional<Failure> compare_calls(const StragglerQuery& question, const Members& members,
                                     const RankProgress& own, const ProgressAnswers& answers);

}  // namespace muster::worker
