// The reading side of a worker's ring: copies out and checks what the worker has recorded. The
// writer may run, be stopped in the middle of a record, be dead, or have written anything at all:
// every index, size, number and text is checked, records count only if their sequence was the same
// before and after, and what is wrong is dropped and counted. Times are nanoseconds of
// CLOCK_MONOTONIC.
//
// Owned by the agent for one attempt; one thread at a time. Reading takes no lock and no system
// call, and costs no more than the size of the ring, whatever it holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/ring/call_rules.h"
#include "rendezvous/ring/departure.h"
#include "rendezvous/ring/failure_record.h"
#include "rendezvous/ring/record_fd.h"

namespace muster {

struct RecordedCall {
  uint32_t group = 0;    // Handle of a RecordedGroup, which may be gone.
  uint64_t ordinal = 0;  // 0: a message whose peer had no room for its counters.
  ring::Call call;
  int tag = 0;
  Instant called;
  std::optional<Instant> started;
  std::optional<Instant> completed;
  bool failed = false;
  bool withdrawn = false;
  uint64_t site_address = 0;  // Native code; 0: unknown, or `site` is set.
  std::string site;           // "train.py:88 step"; empty: native, or unknown.
};

struct RecordedMessages {  // Messages with one peer in one direction, in one of the state's groups.
  uint32_t group = 0;
  int peer = -1;  // Group rank; -1: from any.
  bool is_recv = false;
  uint64_t called = 0;
  uint64_t completed = 0;
  Instant called_at;
};

struct RecordedHash {
  uint64_t ordinal = 0;
  uint64_t hash = 0;
};

struct RecordedGroup {
  uint32_t handle = 0;
  ring::GroupState state = ring::GroupState::unused;
  std::string id;
  std::string name;
  std::string ranks;  // "0-3,7"; empty: unknown.
  int size = 0;
  int own_rank = -1;
  bool completion_is_late = false;
  bool completion_is_unknown = false;
  bool is_on_device = false;
  bool calls_are_unknown = false;
  uint64_t called = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
  Instant state_since;
  Instant called_at;                 // state_since if there was none.
  std::vector<RecordedHash> hashes;  // By ordinal.
};

struct RecordedSection {
  std::string name;
  Instant entered;
};

struct RecordedFailure {
  uint32_t group = 0;
  std::string message;
  Instant at;
};

// Everything that a rank recorded but its calls.
struct RecordedState {
  ring::Source source = ring::Source::none;
  pid_t owner = 0;             // Pid in its own namespace; 0: it gave the ring up.
  uint64_t owner_started = 0;  // Clock ticks since boot.
  uint64_t generation = 0;
  Instant attached;
  std::optional<Instant> looked;  // Last check for completions; nullopt: they are recorded at once.
  std::vector<RecordedGroup> groups;
  std::vector<RecordedMessages> messages;
  std::vector<RecordedSection> sections;  // The outermost first.
  std::optional<RecordedFailure> failure;
  uint64_t calls = 0;    // So far, dropped ones included.
  uint64_t dropped = 0;  // Calls without a record.
  uint64_t groups_left_out = 0;
  uint64_t garbage = 0;  // Malformed entries.

  const RecordedGroup* group(uint32_t handle) const;  // nullptr: none.
};

// Position of a reader of all calls. A new owner of the ring resets it.
struct RingPosition {
  uint64_t generation = 0;
  uint64_t next = 0;         // Number of the next record.
  uint64_t overwritten = 0;  // Calls lost before they could be read, so far.
  uint64_t unwritten = 0;    // 1 + the record that was being written at the last read.
};

// A call without its texts, which cost time.
struct CallGlance {
  uint64_t record = 0;  // Its number, for call().
  uint32_t group = 0;
  uint64_t ordinal = 0;
  ring::CallKind kind = ring::CallKind::unknown;
  bool is_synchronous = false;
  bool withdrawn = false;
  Instant called;
  std::optional<Instant> completed;
};

// Returns true if pending calls may be complete: the process checks them 4 times a second, and has
// not for longer (Python's hook, while the program holds the GIL).
bool completions_are_stale(const RecordedState& state, Instant now);

class RingReader {
 public:
  // Fails with ExitCode::environment.
  static Result<RingReader> open(const ring::RecordFd& record_fd);

  // Makes the rank's should_stop() true from now on.
  void warn() const { ring_->head.warned.store(1, ring::kRelease); }

  // Counts attachments; an attaching process wakes its waiters (futex(2)).
  const std::atomic<uint32_t>& attachments() const;

  // The worker library's last report; nullopt: none or malformed. Best read once the worker has
  // ended.
  std::optional<FailureRecord> reported() const;
  // How the rank's program began to end; nullopt: it did not, malformed, being written, or noted by
  // another program: neither the worker nor the process that records.
  std::optional<Departure> departure(pid_t worker) const;
  // The first thread that an exception ended, as long as there is no departure.
  std::optional<Departure> ended_thread(pid_t worker) const;

  // nullopt: no process has attached, or others attach again and again while it is read. The caller
  // checks that `owner` is the worker or a process below it. A group whose entry is reused
  // meanwhile is left out.
  std::optional<RecordedState> state() const;

  // Shows `visit` the calls from `position` on, in record order, and moves it on. Stops before a
  // call for which `visit` returns false, and before one that is being written; the next read shows
  // it again, or skips it if it is still being written.
  void read_on(RingPosition& position, const std::function<bool(const CallGlance&)>& visit) const;
  // Returns one of those in full; nullopt: overwritten.
  std::optional<RecordedCall> call(const RingPosition& position, uint64_t record) const;

  // Calls for a digest: the last `most` collectives, unless messages have pushed them out of the
  // last records, the last one of each group in `also` (handles), however old, and messages of the
  // last `most` records.
  std::vector<RecordedCall> recent_calls(size_t most, const std::set<uint32_t>& also) const;

  // The last `most` readable calls, in record order; none if state() would be nullopt. A malformed
  // kind, site or time is unknown.
  std::vector<RecordedCall> calls(size_t most) const;

 private:
  struct Unmap {
    void operator()(ring::Ring* ring) const { ring::unmap_ring(ring); }
  };

  explicit RingReader(ring::Ring* ring) : ring_(ring) {}

  std::optional<Departure> noted(pid_t worker) const;

  std::unique_ptr<ring::Ring, Unmap> ring_;  // Only warn() writes.
};

}  // namespace muster
