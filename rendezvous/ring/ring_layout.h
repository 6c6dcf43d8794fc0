// The memory in which a worker records its collectives and its agent reads them: a sealed memfd of
// 512 KiB for each rank, made by the agent and inherited by the worker (record_fd.h). It survives
// the worker's SIGKILL. Every word is an atomic of 64 bits; nothing in it is a pointer; times are
// ticks (ring_clock.h). One process at a time owns the ring and writes; the reader trusts nothing
// (agent/hang/ring_reader.h).
//
//   at        what
//   0         Head
//   4 KiB     Notes: sections, failures
//   8 KiB     128 Groups
//   104 KiB   512 Sites
//   168 KiB   2,048 PeerCounts
//   232 KiB   4,096 Records
//
// Invariants:
//   1. Counters move first: when a record shows a call, its group's `called` counts it.
//   2. A record is whole if its `sequence` is even and the same before and after it was read.
//   3. `sequence` of the slot i is 2 * n + 2 for the record n (n mod 4,096 == i), 2 * n + 1 while
//      it is written, and 0 before the first.
//   4. A group's index and generation (1 to 511, then 1 again) name it: handle = generation << 7 |
//      index. Entries of closed groups are used again, with the next generation.
//   5. `generation` of the head begins to differ from `attached` before the ring is emptied for its
//      next owner, and no longer does once that owner may write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace muster::ring {

using Word = std::atomic<uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);
inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;

inline constexpr uint64_t kMagic = 0x474e4952'5254534dULL;  // "MSTRRING"
inline constexpr uint64_t kVersion = 1;
inline constexpr size_t kRingBytes = size_t{512} * 1024;
inline constexpr size_t kGroups = 128;
inline constexpr size_t kSites = 512;
inline constexpr size_t kPeerCounts = 2048;
inline constexpr size_t kRecords = 4096;
inline constexpr size_t kHashes = 8;
inline constexpr uint64_t kHashEvery = 16;  // Calls.
inline constexpr size_t kSections = 8;      // Nested.
inline constexpr size_t kWordsOfText = 16;  // 127 bytes, cut; filled up with zeroes.
using Text = Word[kWordsOfText];

enum class Source : uint8_t { none = 0, worker_lib, python_hook, nccl_plugin };

struct Head {
  // Written by the agent, before the worker starts.
  Word magic;
  Word version;
  Word bytes;
  Word nonce;
  // Written by the owner. `owner` is its pid in its own namespace, with kAttaching at first; 0:
  // nobody has attached yet, or it has given up. It is set by compare-exchange, after the owner
  // before it has died. The rest holds once `attached` equals `generation`.
  Word owner;
  Word owner_started;  // Clock ticks since boot: field 22 of /proc/PID/stat.
  Word source;
  Word generation;  // Counts owners.
  Word attached;
  Word attached_ticks;  // The pair that relates ticks to nanoseconds of CLOCK_MONOTONIC.
  Word attached_ns;
  Word ticks_are_tsc;
  Word next_record;    // Records reserved, dropped ones included.
  Word dropped;        // Calls without a record: the slot was still being written.
  Word without_group;  // Groups without an entry: the table was full.
  Word futex;          // Its lower half counts attachments; woken by FUTEX_WAKE.
  Word looked_ticks;   // When the owner last looked which calls are complete; 0: it need not look.
  // Written by the agent at any time: not 0 once the job has been warned of its end, so that
  // should_stop() is true. No owner clears it.
  Word warned;
};
static_assert(sizeof(Head) == 18 * 8);
inline constexpr uint64_t kAttaching = uint64_t{1} << 32;

// See failure_record.h.
struct Report {
  Word time_ns;     // 0: none. Set last, cleared first.
  Word what;        // FailureCode | (rank + 1) << 32
  Word origin[64];  // Two ranks in each, plus 1, the lower half first; 0: no more.
  Word message[128];
};

// What the rank says of itself besides its calls.
struct Notes {
  Word depth;  // Of the sections that it is in; deeper ones than kSections have no text.
  Word section_ticks[kSections];  // When each was entered; 0 while its text is written.
  Text sections[kSections];
  // The first failure of a group that the library reported.
  Word failed_ticks;  // 0: none. Set last.
  Word failed_group;  // Its handle, 0: not recorded.
  Word failure[128];  // Its message, cut to 1,023 bytes.
  Report report;
};
static_assert(sizeof(Notes) <= 4096);

enum class GroupState : uint8_t {
  unused = 0,
  forming,  // Members wait for each other at the store.
  ready,
  failed,
  closed,
};

// An ordered sequence of collectives among members. A process group has one for each of its queues:
// host memory, GPU memory, monitored barriers.
struct Group {
  Word state;         // GroupState | generation << 8. Set last.
  Word size;          // Members.
  Word own_rank;      // In the group.
  Word flags;         // kCompletionIsLate and the like.
  Word called;        // The ordinal of the last call, from 1.
  Word launched;      // On a device.
  Word started;       // On a device.
  Word completed;     // The highest ordinal up to which all calls are complete.
  Word dropped;       // Calls without a record, messages without a count.
  Word state_ticks;   // When the state changed.
  Word called_ticks;  // When `called` moved.
  Word completed_ticks;
  Word running_hash;           // Over all calls (call_rules.h).
  Word hash_ordinal[kHashes];  // The hash after every 16th call: entry (ordinal / 16) mod 8.
  Word hash[kHashes];
  Text id;  // Equal on all members, and of no other group of the job.
  Text name;
  Text ranks;  // Global ranks in group order, as "0-3,7"; empty: unknown or too long.
  Word spare[19];
};
static_assert(sizeof(Group) == 768);

// The completion of a device's calls is noticed by a look at later calls, not at once.
inline constexpr uint64_t kCompletionIsLate = 1;
// Whether the last calls are complete cannot be seen.
inline constexpr uint64_t kCompletionIsUnknown = 2;
// A device performs the calls, and waits in them whatever the process does. Completions are seen of
// those that were seen to start there, and may be of none.
inline constexpr uint64_t kIsOnDevice = 4;
// Calls are made that are not recorded (by captured CUDA graphs).
inline constexpr uint64_t kCallsAreUnknown = 8;

// A place in the program. Native code: `address`; Python: `text`, as "train.py:88 step".
struct Site {
  Word address;  // 0: unused. Taken by compare-exchange. With a text: a hash of it.
  Word text[15];
};
static_assert(sizeof(Site) == 128);

// Messages are counted by group, peer and direction.
struct PeerCount {
  Word key;  // 0: unused; else 1 << 63 | is_recv << 62 | handle << 32 | peer + 1 (0: any).
  Word called;
  Word completed;
  Word called_ticks;
};
static_assert(sizeof(PeerCount) == 32);

// One call.
struct Record {
  Word sequence;
  Word what;     // handle | kind << 16 | type << 24 | reduction << 32 | flags << 40 | site << 48
  Word peer;     // Root or peer + 1 in the lower half, the tag in the upper.
  Word ordinal;  // Of a message: by its peer and direction.
  Word count;
  Word called_ticks;
  // The lap of its slot (record / 4,096, 16 bits) above the ticks since `called_ticks` (48 bits),
  // 0: not yet. Ticks are at least 1.
  Word started;
  Word completed;
};
static_assert(sizeof(Record) == 64);

// Flags of a record.
inline constexpr uint64_t kIsV = 1;
inline constexpr uint64_t kIsSynchronous = 2;
inline constexpr uint64_t kWithdrawn = 4;  // Refused before anything was sent.
inline constexpr uint64_t kFailed = 8;

inline constexpr size_t kNoSite = 0xffff;

struct Ring {
  Head head;
  std::byte pad[4096 - sizeof(Head)];
  Notes notes;
  std::byte pad_notes[4096 - sizeof(Notes)];
  Group groups[kGroups];
  Site sites[kSites];
  PeerCount peers[kPeerCounts];
  Record records[kRecords];
};
static_assert(sizeof(Ring) <= kRingBytes);

}  // namespace muster::ring
