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

// What is known of one rank that a finding names.
struct Suspect {
  int rank = 0;
  Class what = Class::never_entered;
  std::string life;  // "blocked in read() of a pipe", "exited with 0"; empty: unknown.
  // What it called instead, waits in, or called last: "all_reduce (sum) of 8 float32"; empty:
  // nothing, or unknown.
  std::string call;
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
  std::string group;         // Name, for people.
  std::string operation;     // "all_reduce (sum) of 262144 float32"; "forming the group"
  uint64_t ordinal = 0;      // 0: forming, or a message.
  // Not 0: one of the calls from here to `ordinal` differs, and it is not known any more which one.
  uint64_t from_ordinal = 0;
  Duration waited{};     // Since the first rank began to wait.
  std::string site;      // Where those that wait called it; empty: unknown, or many places.
  std::string doubt;     // Why the confidence is not high: "ranks 3-4 record nothing".
  bool is_over = false;  // The attempt is: a worker has failed, or all have ended.

  friend bool operator==(const Finding&, const Finding&) = default;
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
  LifeState state = LifeState::unknown;
  std::string words;
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
  std::string group;
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
  std::string group;
  Duration limit{};
};
// The first worker has failed, and the call of this mismatch was under way then, or had failed: the
// mismatch is why.
struct Explained {
  uint64_t number = 0;
};
using Effect = std::variant<LookAt, Notice, WaitEnded, WentOn, Verdict, Withdrawn, Explained>;

}  // namespace muster::hang
