// What goes into the hang detector and what comes out of it: plain values, which may come from
// another node; detector.h says what they mean. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/hang/digest.h"
#include "agent/hang/life.h"
#include "agent/process/exit_status.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

enum class Class : uint8_t {
  never_entered,
  exited,
  stopped,
  busy,
  signature,
  order,
  circle,
  incomplete,
};
const char* name_of(Class what);  // The value in events.jsonl and result.json.
bool is_late(Class what);         // Those that it names have not come, and may come yet.

enum class By : uint8_t { proof, time };
enum class Confidence : uint8_t { low, medium, high };

// What ranks take part in together.
struct Operation {
  enum class Kind : uint8_t { collective, send, recv, forming };  // Forming the group itself.

  Kind kind = Kind::collective;
  std::string group{};   // Name, for people.
  uint64_t ordinal = 0;  // A collective's place among those of its group.
  ring::Call call{};     // A collective; of an unknown kind: it is not known which one.
  int peer = -1;         // A message's partner, as a rank of the job; -1: any.

  friend bool operator==(const Operation&, const Operation&) = default;
};

// Why a finding's confidence is not high, if it is not that nobody knows what a late rank does.
struct Doubt {
  enum class Why : uint8_t {
    none,
    records_nothing,  // These ranks.
    also_late,        // Likewise.
    unknown_members,
  };

  Why why = Why::none;
  std::vector<int> ranks;

  friend bool operator==(const Doubt&, const Doubt&) = default;
};

// What is known of one rank that a finding names.
struct Suspect {
  int rank = 0;
  Class what = Class::never_entered;
  Life life;
  std::optional<ExitStatus> ended;  // Then `life` says nothing.
  // What it called instead, waits in, or called last; nullopt: nothing, or unknown.
  std::optional<Operation> call;
  std::string site;  // Where it called it.
  std::string section;
  bool is_inside = false;  // It is late in completing the call, which it has made.

  friend bool operator==(const Suspect&, const Suspect&) = default;
};

struct Finding {
  // Of this wait, in the order in which they were found, for all attempts: a notice, its verdict
  // and its withdrawal have the same.
  uint64_t number = 0;
  Class what = Class::never_entered;
  By by = By::time;
  Confidence confidence = Confidence::high;
  // The late ones or culprits, by rank; in a tie both camps; a circle in the order in which they
  // wait for each other; of an incomplete call those that have not completed it while others have.
  std::vector<Suspect> ranks;
  bool is_tie = false;
  std::vector<int> waiting;  // Ranks that wait for them, directly or through others.
  Operation operation;
  // Not 0: one of the calls from here to the operation's differs, and it is not known any more
  // which one.
  uint64_t from_ordinal = 0;
  Duration waited{};  // Since the first rank began to wait.
  std::string site;   // Where those that wait called it; empty: unknown, or many places.
  Doubt doubt;
  bool is_over = false;  // The attempt is: a worker has failed, or all have ended.

  friend bool operator==(const Finding&, const Finding&) = default;
};

// The oldest wait of the job.
struct Status {
  Operation operation;
  std::vector<int> late;   // Those that are waited for, ascending; empty: all are in the call.
  size_t waiting = 0;      // So many ranks wait for them.
  bool is_circle = false;  // `late` wait for each other.
  Instant since{};
};

// ---- events
// A new attempt with ranks 0 .. world_size - 1: everything before is forgotten.
struct Begun {
  int world_size = 0;
};
struct Digested {
  RankDigest digest;
};
// The newest digest of a rank still held at that time.
struct Confirmed {
  int rank = 0;
  Instant at{};
};
// What the two latest looks at a rank make.
struct LifeSeen {
  int rank = 0;
  Life life;
  std::optional<Instant> at = std::nullopt;  // When the later look was taken; not given: now.
};
struct Ended {
  int rank = 0;
  int code = 0;  // As ExitStatus::signed_code().
};
// The attempt is being stopped: nothing more is judged.
struct Stopping {};
struct Suspended {};
struct Resumed {};
// The observer's own clock jumped, or it was stopped: all waits begin anew.
struct Jumped {};
struct Tick {};
using Event = std::variant<Begun, Digested, Confirmed, LifeSeen, Ended, Stopping, Suspended,
                           Resumed, Jumped, Tick>;

// ---- effects
// From now on, look at these ranks once in Limits::look; replaces the list before. Empty: at none.
struct LookAt {
  std::vector<int> ranks;
};
struct Notice {
  Finding finding;
};
// The wait of a notice is over, without a verdict: its late ranks came after so long. Not said if
// ranks have ended.
struct WaitEnded {
  uint64_t number = 0;
  std::vector<int> ranks;
  Duration waited{};
  bool have_come = true;  // Else the group failed or was closed, or nobody waits any more.
};
// A rank whose wait ended without those that were late has made other calls since, so that it has
// survived that. Said of the newest such wait, and before the first worker fails.
struct WentOn {
  uint64_t number = 0;
};
struct Verdict {
  Finding finding;
};
// A verdict was wrong: the wait went on. `limit`: the doubled one, from now on; 0: it was no limit
// that misjudged.
struct Withdrawn {
  uint64_t number = 0;
  std::vector<int> ranks;
  Duration limit{};
};
// The first worker has failed, and the call of this mismatch was under way then, or had failed: the
// mismatch is why.
struct Explained {
  uint64_t number = 0;
};
using Effect = std::variant<LookAt, Notice, WaitEnded, WentOn, Verdict, Withdrawn, Explained>;

}  // namespace muster::hang
