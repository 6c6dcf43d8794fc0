// Events and effects of the hang detector: plain values, which may come from another node;
// detector.h explains them. Pure.
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
bool is_late(Class what);         // Named ranks have not come but still may.

enum class By : uint8_t { proof, time };
enum class Confidence : uint8_t { low, medium, high };

// An operation of several ranks.
struct Operation {
  // forming: the group itself.
  enum class Kind : uint8_t { collective, send, recv, forming, store_key, store_barrier };

  Kind kind = Kind::collective;
  GroupName group{};
  uint64_t ordinal = 0;  // A collective's ordinal in its group.
  ring::Call call{};     // A collective; kind `unknown`: not known which.
  int peer = -1;         // A message's peer, a global rank; -1: any.
  std::string key{};     // A key's name, or a barrier's.
  size_t more_keys = 0;  // How many others are waited for with it.

  friend bool operator==(const Operation&, const Operation&) = default;
};

// Why a finding's confidence is not high, unless it is only that a process could not be seen.
struct Doubt {
  enum class Why : uint8_t {
    none,
    records_nothing,  // `ranks` record nothing.
    also_late,        // `ranks` are late too.
    unknown_members,
    unknown_setter,  // Nothing shows that these ranks are to set the key.
  };

  Why why = Why::none;
  std::vector<int> ranks;

  friend bool operator==(const Doubt&, const Doubt&) = default;
};

// Facts about a rank that a finding names.
struct Suspect {
  int rank = 0;
  Class what = Class::never_entered;
  Life life;
  std::optional<ExitStatus> ended;  // If set, `life` is unknown.
  // The call made instead, waited in or made last; nullopt: nothing or unknown.
  std::optional<Operation> call;
  std::string site;  // Call site of `call`.
  std::string section;
  bool is_inside = false;  // True if it has made the call and is late to complete it.
  // True if it has a group of the same members that is another one to PyTorch.
  bool has_another = false;

  friend bool operator==(const Suspect&, const Suspect&) = default;
};

struct Finding {
  // Counts waits over all attempts; shared by a notice, its verdict and its withdrawal.
  uint64_t number = 0;
  Class what = Class::never_entered;
  By by = By::time;
  Confidence confidence = Confidence::high;
  // Late ranks or culprits, by rank; in a tie all camps; in a circle each before the one it waits
  // for; for an incomplete call those that have not completed it though others have.
  std::vector<Suspect> ranks;
  bool is_tie = false;
  std::vector<int> waiting;  // Ranks that wait for them, directly or through others.
  Operation operation;
  // Not 0: one of the calls from here to the operation's differs; which one is no longer known.
  uint64_t from_ordinal = 0;
  Duration waited{};  // Time since the first rank began to wait.
  std::string site;   // Call site of the waiting ranks; empty: unknown or several.
  Doubt doubt;
  bool is_over = false;  // The attempt is over: a worker has failed or all have ended.

  friend bool operator==(const Finding&, const Finding&) = default;
};

// The oldest wait of the job.
struct Status {
  Operation operation;
  std::vector<int> late;   // Ranks waited for, ascending; empty: all are in the call.
  size_t waiting = 0;      // Number of ranks that wait for them.
  bool is_circle = false;  // `late` wait for each other.
  Instant since{};
};

// ---- events
// A new attempt with ranks 0 .. world_size - 1; forgets everything before.
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
// The state that the two latest samples of a rank's process show.
struct LifeSeen {
  int rank = 0;
  Life life;
  std::optional<Instant> at = std::nullopt;  // Time of the later sample; nullopt: now.
};
struct Ended {
  int rank = 0;
  int code = 0;  // ExitStatus::signed_code()
};
// The attempt is being stopped: nothing more is judged.
struct Stopping {};
struct Suspended {};
struct Resumed {};
// The observer's own clock jumped, or its process was stopped: all waits begin anew.
struct Jumped {};
// What ranks wait for in the job's store, now; told once a second while any does. See KeyWaits.
struct KeyWait {
  std::string key;  // The first one.
  size_t more = 0;  // How many others are waited for with it.
  bool is_barrier = false;
  std::vector<int> waiting{};  // Sorted. Empty: none does any more,
  bool exists = false;         // since the key has been set; false: they gave up.
  std::vector<int> late{};     // Ranks that are to set the keys, sorted; empty: unknown.
};
struct KeysAwaited {
  int store_port = 0;
  std::vector<KeyWait> waits;
  std::vector<int> unsure{};  // Ranks of which one may be a client of unknown rank; sorted.
};
struct Tick {};
using Event = std::variant<Begun, Digested, Confirmed, LifeSeen, Ended, Stopping, Suspended,
                           Resumed, Jumped, KeysAwaited, Tick>;

// ---- effects
// Sample the processes of these ranks every Limits::look; replaces the previous list.
struct LookAt {
  std::vector<int> ranks;
};
struct Notice {
  Finding finding;
};
// The wait of a notice ended after `waited` without a verdict. Not sent if ranks have ended.
struct WaitEnded {
  uint64_t number = 0;
  std::vector<int> ranks;
  Duration waited{};
  bool have_come = true;  // False: the group failed or closed, or no rank waits any more.
};
// A rank whose wait ended without the late ranks has made further calls, so it survived that. Sent
// for the newest such wait only, and before the first worker fails.
struct WentOn {
  uint64_t number = 0;
};
struct Verdict {
  Finding finding;
};
// A verdict was wrong: the wait went on. `limit`: the doubled limit; 0: no limit was to blame.
struct Withdrawn {
  uint64_t number = 0;
  std::vector<int> ranks;
  Duration limit{};
};
// The first worker failed while this mismatch's call was in flight or had failed: it is the cause.
struct Explained {
  uint64_t number = 0;
};
using Effect = std::variant<LookAt, Notice, WaitEnded, WentOn, Verdict, Withdrawn, Explained>;

}  // namespace muster::hang
