// The reading side of a worker's ring: what the worker has recorded, copied out and checked. The
// writer may run, be stopped in the middle of a record, be dead, or have written anything at all:
// every index, size, number and text is checked, records are taken only if their sequence was the
// same before and after, and what is wrong is dropped and counted. Times are nanoseconds of
// CLOCK_MONOTONIC, as the agent's own.
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
#include "rendezvous/ring/failure_record.h"
#include "rendezvous/ring/record_fd.h"

namespace muster {

struct RecordedCall {
  uint32_t group = 0;    // Handle of a RecordedGroup; its group may be gone.
  uint64_t ordinal = 0;  // 0: of a message whose peer had no room for its counters.
  ring::Call call;
  int tag = 0;
  Instant called;
  std::optional<Instant> started;
  std::optional<Instant> completed;
  bool failed = false;
  bool withdrawn = false;
  uint64_t site_address = 0;  // Of native code; 0: unknown, or there is a text.
  std::string site;           // "train.py:88 step"; empty: native, or unknown.
};

struct RecordedMessages {  // Of one peer and direction, in one of the state's groups.
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
  uint64_t launched = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
  uint64_t dropped = 0;
  Instant state_since;
  Instant called_at;                 // Of the last call; as state_since if there was none.
  Instant completed_at;              // Likewise.
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

// What a rank recorded, without its calls.
struct RecordedState {
  ring::Source source = ring::Source::none;
  pid_t owner = 0;             // In its own pid namespace; 0: it has given the ring up.
  uint64_t owner_started = 0;  // Clock ticks since boot.
  uint64_t generation = 0;
  Instant attached;
  std::optional<Instant> looked;  // For completed calls; not set: it tells of them as they happen.
  std::vector<RecordedGroup> groups;
  std::vector<RecordedMessages> messages;
  std::vector<RecordedSection> sections;  // The outermost first.
  std::optional<RecordedFailure> failure;
  uint64_t calls = 0;    // So far, with the dropped ones.
  uint64_t dropped = 0;  // Calls without a record.
  uint64_t groups_left_out = 0;
  uint64_t garbage = 0;  // Entries that were no such thing.

  const RecordedGroup* group(uint32_t handle) const;  // nullptr: there is none.
};

// Where a reader of all calls has come to. A new owner of the ring begins anew.
struct RingPosition {
  uint64_t generation = 0;
  uint64_t next = 0;         // The number of a record.
  uint64_t overwritten = 0;  // Calls that were gone before they could be read, so far.
  uint64_t unwritten = 0;    // 1 + the record that was being written when it was last read.
};

// The part of a call that costs no text.
struct CallGlance {
  uint64_t record = 0;  // Its number: for call().
  uint32_t group = 0;
  uint64_t ordinal = 0;
  ring::CallKind kind = ring::CallKind::unknown;
  bool is_synchronous = false;
  bool withdrawn = false;
  Instant called;
  std::optional<Instant> completed;
};

// Whether calls that look pending may be complete: the process looks 4 times a second, and has not
// for longer (Python's hook, while the program holds the GIL).
bool completions_are_stale(const RecordedState& state, Instant now);

class RingReader {
 public:
  // Fails with ExitCode::environment.
  static Result<RingReader> open(const ring::RecordFd& record_fd);

  // From now on the rank's should_stop() is true.
  void warn() const { ring_->head.warned.store(1, ring::kRelease); }

  // Counts attachments; a process that attaches wakes who waits for it (futex(2)).
  const std::atomic<uint32_t>& attachments() const;

  // What the worker library reported last; nullopt: nothing, or what is there makes no sense. Best
  // once the worker has ended.
  std::optional<FailureRecord> reported() const;

  // nullopt: nobody has attached, or others attach again and again while it is read. Whether
  // `owner` is sound is the caller's to check: the worker, or a process below it.
  //
  // A group whose entry is used for another one meanwhile is left out.
  std::optional<RecordedState> state() const;

  // Shows `visit` the calls from `position` on, in the order of their records, and moves it on;
  // stops before the first one that is just being written, or that `visit` returns false for: it is
  // shown again by the next reading. A call that is still being written then is passed over.
  void read_on(RingPosition& position, const std::function<bool(const CallGlance&)>& visit) const;
  // One of those, whole; nullopt: it is overwritten.
  std::optional<RecordedCall> call(const RingPosition& position, uint64_t record) const;

  // As calls(), for a digest: the last `most` collectives, if messages leave them among the last
  // records, and the last one of each group in `also` (handles), however old; messages of the last
  // `most` records.
  std::vector<RecordedCall> recent_calls(size_t most, const std::set<uint32_t>& also) const;

  // The last `most` calls that can be read, in the order of their records; none where state() would
  // be nullopt. What a field can only hold by mistake is unknown: a kind, a site, a time.
  std::vector<RecordedCall> calls(size_t most) const;

 private:
  struct Unmap {
    void operator()(ring::Ring* ring) const { ring::unmap_ring(ring); }
  };

  explicit RingReader(ring::Ring* ring) : ring_(ring) {}

  std::unique_ptr<ring::Ring, Unmap> ring_;  // Only warn() writes.
};

}  // namespace muster
