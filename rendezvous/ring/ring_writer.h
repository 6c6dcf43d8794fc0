// The writing side of a ring: one object per process that records.
//
//   std::string why;
//   auto writer = RingWriter::attach(text_of_MUSTER_RECORD_FD, Source::worker_lib, why);
//   const int world = writer->open_group({.id = "world", .name = "world", .ranks = "0-3",
//                                         .size = 4, .own_rank = 1});
//   writer->set_state(world, GroupState::ready);
//   const Pending call = writer->called(world, 17, {.kind = CallKind::all_reduce, ...}, site);
//   ...
//   writer->completed(call);
//
// After attach(), nothing here locks, allocates, throws or enters the kernel, and any thread may
// call anything, except that the collectives of one group are recorded by one thread at a time. A
// process forked after attach() writes nothing (fork_mark.h).
//
// Cost: called() and completed() together take 20 to 40 ns if the time-stamp counter is invariant.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/ring/call_rules.h"
#include "rendezvous/ring/fork_mark.h"
#include "rendezvous/ring/ring_clock.h"
#include "rendezvous/ring/ring_layout.h"

namespace muster::ring {

struct GroupFacts {
  std::string_view id = {};
  std::string_view name = {};
  // "0-3,7" in group order; longer than 127 bytes: recorded as unknown.
  std::string_view ranks = {};
  int size = 0;
  int own_rank = -1;
  bool completion_is_late = false;
  bool is_on_device = false;
};

// A recorded call, for its later events. Plain values; may be copied and dropped.
struct Pending {
  static constexpr uint64_t kNoRecord = ~uint64_t{0};
  uint64_t record = kNoRecord;
  uint64_t ordinal = 0;
  uint64_t called_ticks = 0;
  uint64_t hash_before = 0;
  int32_t group = -1;       // Handle; -1: not recorded at all.
  int32_t peer_count = -1;  // Index of a message's PeerCount; -1: none.
};

class RingWriter {
 public:
  // Maps the ring and shares it (share_ring()), or takes it (take_ring()) if it has no owner or its
  // owner has ended. Otherwise returns nullptr and `why` (one line). Tests pass another `tsc`.
  static std::unique_ptr<RingWriter> attach(std::string_view record_fd, Source source,
                                            std::string& why, bool tsc = tsc_is_invariant());
  // Leaves the ring's contents for the reader; gives up owning it, unless it is shared.
  ~RingWriter();
  RingWriter(const RingWriter&) = delete;
  RingWriter& operator=(const RingWriter&) = delete;

  // True in the process that attached, false in forked children. One load.
  bool is_attached() const { return mark_.is_here(); }

  // True once the launcher's agent has warned of the job's end. One load; any thread.
  bool is_warned() const { return ring_->head.warned.load(kAcquire) != 0; }

  // ---- groups, by handle; calls on -1 are not recorded
  // Returns the handle of a new group, in the state `forming`; -1 if the table is full.
  int32_t open_group(const GroupFacts& facts);
  void set_state(int32_t group, GroupState state);
  // Sets or clears kCompletionIsUnknown.
  void set_completion_unknown(int32_t group, bool unknown);
  // Sets kCallsAreUnknown.
  void set_calls_unknown(int32_t group);

  // ---- collectives
  // `ordinal`: 1 for the first call, then ascending by 1. `site`: a return address, or nullptr.
  Pending called(int32_t group, uint64_t ordinal, const Call& call, const void* site);
  void launched(const Pending& pending);
  void started(const Pending& pending);
  // Records that all calls of the group up to this one are complete.
  void completed(const Pending& pending);
  // The same, with an error.
  void failed(const Pending& pending);
  // Takes back a call that was refused before anything was sent; the next call has its ordinal.
  // REQUIRES: no call since.
  void withdrawn(const Pending& pending);

  // ---- messages: `call.root` is the peer (-1: any); ordinals are counted here
  Pending message_called(int32_t group, const Call& call, int tag, const void* site);

  // ---- sources that poll for completions
  // The time for looked().
  uint64_t now() const;
  // Notes that completions are up to date as of `began`.
  void looked(uint64_t began);
  // Returns the `site` for a place that is described by a text; nullptr if there is no room. Takes
  // time linear in the text, so cache the result.
  const void* name_site(std::string_view text);

  // ---- notes
  // Records a failure, only the first.
  void note_failure(int32_t group, std::string_view message);
  // Nested; `name` is cut to 127 bytes. One thread at a time.
  void enter_section(std::string_view name);
  void leave_section();

 private:
  RingWriter(Ring* ring, ForkMark mark, bool tsc, bool is_shared);

  Group* find(int32_t group) const;  // nullptr if there is no such group, or not attached.
  int32_t take_group();
  void free_counts(uint64_t group);
  void keep_hash(Group& group, uint64_t ordinal, uint64_t hash);
  uint64_t count_completed(const Pending& pending);
  int32_t find_count(uint64_t key);
  PeerCount* count_of(const Pending& pending) const;
  uint64_t write_record(Group& group, const Pending& pending, const Call& call, int tag,
                        const void* site);
  Record* record_of(const Pending& pending) const;
  void flag_record(const Pending& pending, uint64_t flag, uint64_t completed);
  size_t find_site(const void* site);

  Ring* const ring_;
  const ForkMark mark_;
  const bool tsc_;
  const bool is_shared_;  // True if another library of this process owns the ring.
  std::atomic<bool> has_failed_ = false;
};

}  // namespace muster::ring
