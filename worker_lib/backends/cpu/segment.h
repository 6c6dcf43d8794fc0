// The memory that the ranks of one group on one node share: a sealed memfd, mapped by all of them.
// It holds the abort word with its reason, the ranks' control lines and slots for collectives (used
// by ShmGroup), a doorbell for each rank and a plain area for point-to-point rings.
//
// A Segment is one mapping of it; shared_ptrs keep it alive. Several ranks that are threads of one
// process may use the same Segment (tests do, so that thread sanitizers see one address). Its
// memory is zeroed, and pages that are never touched cost nothing.
//
// The abort word is 0, or 1 while a reason is written, or 2 when it can be read; it never
// decreases.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "worker_lib/backends/cpu/waiting.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// Sizes that all ranks of a segment must agree on.
struct SegmentShape {
  int ranks = 1;
  size_t small_bytes = 8192;         // Of a call that ends with its meeting; two areas per rank.
  size_t chunk_bytes = 1024 * 1024;  // Of a slot of a pipelined call; kChunkSlots per rank.
  size_t extra_bytes = 0;            // Of the plain area.

  friend bool operator==(const SegmentShape&, const SegmentShape&) = default;
};

inline constexpr int kChunkSlots = 3;
// The largest piece that all ranks read: larger ones would not stay in the cache. Pieces for single
// ranks share a whole chunk: if small, they make ranks that lack a core wait for each other more
// often than they copy.
inline constexpr size_t kCommonPieceBytes = 256 * 1024;

// A rank's current call; written by it, read by all. One cache line, which includes the data itself
// if that is 8 bytes or less.
struct alignas(kCacheLine) CallLine {
  std::atomic<uint64_t> sequence;  // Stored last: the rank has reached this call.
  uint64_t call;                   // Kind, dtype, reduction, flags, root: see call_word.h.
  uint64_t count;
  uint64_t counts_hash;
  uint64_t in_place_of;   // Place of `in` in memory from allocate_shared(); 0: elsewhere.
  uint64_t out_place_of;  // The same for `out`.
  uint64_t step_base;     // Where `produced` and `consumed` start in this call.
  std::byte inlined[8];
};
static_assert(sizeof(CallLine) == kCacheLine);

// A rank's progress in a pipelined call; written by it, read by all.
struct alignas(kCacheLine) ProgressLine {
  std::atomic<uint64_t> produced;  // Chunks put into its slots.
  std::atomic<uint64_t> consumed;  // Chunks taken from (or reduced in) others' slots.
  std::atomic<uint64_t> finished;  // The last call after which it reads no other's slots.
};

class Segment {
 public:
  // Makes a new one. Fails with ErrorCode::system if the kernel refuses.
  static Outcome<std::shared_ptr<Segment>> create(const SegmentShape& shape);
  // Maps that of another process. Checks seals, size, magic, version and shape. Does not take
  // ownership of `fd`, which may be closed afterwards.
  static Outcome<std::shared_ptr<Segment>> open(int fd, const SegmentShape& shape);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentShape& shape() const { return shape_; }
  int ranks() const { return shape_.ranks; }

  // The descriptor to pass on, for a segment made by create(), until close_fd().
  int fd() const { return fd_; }
  void close_fd();

  // ---- abort: any thread of any rank

  // The first call counts; wakes every thread that waits in this segment.
  void abort(const Failure& failure);
  const std::atomic<uint32_t>& abort_word() const;
  // The failure that abort() was called with, by any rank; nullopt: not called. Waits up to 100 ms
  // for a reason that is being written.
  std::optional<Failure> failure() const;

  // ---- point to point

  // For one rank's receiving and sending threads; no member here rings it except abort().
  Doorbell& doorbell(int rank) const;
  // shape().extra_bytes, aligned to a page.
  std::span<std::byte> extra() const;

  // ---- collectives: see ShmGroup

  Doorbell& collective_bell() const;
  CallLine& call_line(int rank, uint64_t sequence) const;  // One of two, alternating.
  ProgressLine& progress(int rank) const;
  std::byte* small_data(int rank, uint64_t sequence) const;  // One of two, alternating.
  std::byte* chunk(int rank, uint64_t index) const;          // One of kChunkSlots, in turn.
  uint64_t* counts(int rank, uint64_t sequence) const;       // ranks() numbers; one of two.

 private:
  struct Head;
  // Where the parts lie, in bytes from the start.
  struct Layout {
    size_t bells, lines, progress, counts, small, chunks, extra, end;
  };
  Segment(std::byte* base, int fd, const SegmentShape& shape);

  static Layout layout_of(const SegmentShape& shape);
  Head& head() const;
  size_t line_index(int rank, uint64_t sequence) const {
    return (sequence % 2) * static_cast<size_t>(shape_.ranks) + static_cast<size_t>(rank);
  }

  std::byte* base_;
  int fd_;
  SegmentShape shape_;
  Layout layout_;
};

}  // namespace muster::worker
