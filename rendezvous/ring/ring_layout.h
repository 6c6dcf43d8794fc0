// The memory in which a worker records its collectives for its agent: a sealed memfd of 512 KiB per
// rank, made by the agent and inherited by the worker (record_fd.h). It survives the worker's
// SIGKILL. Every word is a 64-bit atomic; none is a pointer; times are ticks (ring_clock.h). One
// process at a time owns the ring and writes; the reader (agent/hang/ring_reader.h) trusts nothing.
//
//   at        what
//   0         Head
//   4 KiB     Notes: sections, failures, departure
//   8 KiB     128 Groups
//   104 KiB   512 Sites
//   168 KiB   2,048 PeerCounts
//   232 KiB   4,096 Records
//
// Invariants:
//   1. Counters move first: a call that a record shows is already counted in its group's `called`.
//   2. A record is whole if its `sequence` is even and the same before and after it was read.
//   3. `sequence` of slot i is 2 * n + 2 for record n (n mod 4,096 == i), 2 * n + 1 while it is
//      written, and 0 before the first.
//   4. A group is identified by index and generation (1 to 511, then 1 again): handle = generation
//      << 7 | index. Entries of closed groups are reused with the next generation.
//   5. While a new owner takes over, `generation` of the head != `attached`: read nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(MUSTER_MODELLED)  // By tests that try every order of memory that C++ allows.
#include MUSTER_MODELLED
#endif

namespace muster::ring {

#if defined(MUSTER_MODELLED)
using model::release_fence;
using model::Word;
#else
using Word = std::atomic<uint64_t>;
inline void release_fence() {
  std::atomic_thread_fence(std::memory_order_release);
}
#endif
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
inline constexpr size_t kWordsOfText = 16;  // At most 127 bytes, padded with zeroes.
using Text = Word[kWordsOfText];

enum class Source : uint8_t { none = 0, worker_lib, python_hook, nccl_plugin };

struct Head {
  // Written by the agent before the worker starts.
  Word magic;
  Word version;
  Word bytes;
  Word nonce;
  // Written by the owner. `owner` is its pid in its own namespace, with kAttaching at first; 0: no
  // owner yet, or it has left. It is taken by compare-exchange from 0 or from an owner that has
  // died. The rest is valid once `attached` equals `generation`.
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
  Word looked_ticks;   // When the owner last polled for completed calls; 0: never, or no need to.
  // Written by the agent at any time, never cleared: nonzero once the job has been warned of its
  // end, which makes should_stop() true.
  Word warned;
};
static_assert(sizeof(Head) == 18 * 8);
inline constexpr uint64_t kAttaching = uint64_t{1} << 32;

// See failure_record.h.
struct Report {
  Word time_ns;     // 0: none. Set last, cleared first.
  Word what;        // FailureCode | (rank + 1) << 32
  Word origin[64];  // Two ranks per word, lower half first, each plus 1; 0: no more.
  Word message[128];
};

// See departure.h.
struct DepartureNote {
  Word time_ns;  // 0: none. Set last, cleared first.
  Word what;     // DepartureKind | pid << 32
  Word error[28];
  Word site[8];
  Word threads[12];
};

// The sections, the failures and the departure of the rank.
struct Notes {
  Word depth;                     // Sections entered; those deeper than kSections have no text.
  Word section_ticks[kSections];  // When each was entered; 0 while its text is written.
  Text sections[kSections];
  // The first failure of a group that was reported.
  Word failed_ticks;  // 0: none. Set last.
  Word failed_group;  // The group's handle; 0: not recorded.
  Word failure[128];  // Its message, cut to 1,023 bytes.
  Report report;
  DepartureNote departure;
};
static_assert(sizeof(Notes) <= 4096);

enum class GroupState : uint8_t {
  unused = 0,
  forming,  // Members wait for each other at the store.
  ready,
  failed,
  closed,
};

// An ordered sequence of collectives. A process group has one for each of its queues: host memory,
// GPU memory, monitored barriers.
struct Group {
  Word state;         // GroupState | generation << 8. Set last.
  Word size;          // Members.
  Word own_rank;      // Rank in the group.
  Word flags;         // kCompletionIsLate etc.
  Word called;        // Ordinal of the last call, from 1.
  Word launched;      // Ordinal of the last call launched on a device.
  Word started;       // Ordinal of the last call started on a device.
  Word completed;     // The highest ordinal up to which all calls are complete.
  Word dropped;       // Calls without a record, messages without a count.
  Word state_ticks;   // When the state changed.
  Word called_ticks;  // When `called` moved.
  Word completed_ticks;
  Word running_hash;           // Hash of all calls (call_rules.h).
  Word hash_ordinal[kHashes];  // The hash after every 16th call: entry (ordinal / 16) mod 8.
  Word hash[kHashes];
  Text id;  // Equal on all members; unique in the job.
  Text name;
  Text ranks;  // Global ranks in group order, as "0-3,7"; empty: unknown or too long.
  Word spare[19];
};
static_assert(sizeof(Group) == 768);

// Completions on a device are noticed by polling at later calls, not at once.
inline constexpr uint64_t kCompletionIsLate = 1;
// The completion of the last calls cannot be observed.
inline constexpr uint64_t kCompletionIsUnknown = 2;
// A device performs the calls and waits in them, whatever the process does. Completions are seen
// only for calls that were seen to start there, perhaps for none.
inline constexpr uint64_t kIsOnDevice = 4;
// Some calls are not recorded (those of captured CUDA graphs).
inline constexpr uint64_t kCallsAreUnknown = 8;

// A place in the program. Native code has an `address`, Python a `text` such as "train.py:88 step".
struct Site {
  Word address;  // Taken by compare-exchange; with a text, a hash of it. 0: unused.
  Word text[15];
};
static_assert(sizeof(Site) == 128);

// A count of messages by group, peer and direction.
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
  Word ordinal;  // Counts calls of the group; messages, by peer and direction.
  Word count;
  Word called_ticks;
  // 0: not yet. Upper 16 bits: record / 4,096, the slot's lap; lower 48: ticks since the call, at
  // least 1.
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
