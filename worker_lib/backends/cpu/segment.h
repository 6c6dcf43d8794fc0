// The memory that the ranks of one group on one node share: a sealed memfd, mapped by all of them.
// It holds the abort word with its reason, the ranks' control lines and slots for collectives (used
// by ShmGroup), a doorbell per rank and a plain area for point-to-point rings.
//
// A Segment is one mapping of that memory, initially zeroed; untouched pages cost nothing. Ranks
// that are threads of one process may share it (tests do, so that thread sanitizers see one
// address). The abort word is 0, then 1 while a reason is written, then 2 once it can be read.
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
  size_t small_bytes = 8192;  // Area for calls whose data fits into the meeting; two per rank.
  size_t chunk_bytes = 1024 * 1024;  // Slot of a pipelined call; kChunkSlots per rank.
  size_t extra_bytes = 0;            // Plain area.

  friend bool operator==(const SegmentShape&, const SegmentShape&) = default;
};

inline constexpr int kChunkSlots = 3;
// Data that all ranks read is passed in pieces of at most this size, data for a single rank in
// pieces of a whole chunk. A larger piece would leave the cache before the last rank reads it; with
// smaller pieces for single ranks, ranks that lack a core would wait more than copy.
inline constexpr size_t kCommonPieceBytes = 256 * 1024;

// A rank's current call; written by it, read by all. The line also holds data of up to 8 bytes.
struct alignas(kCacheLine) CallLine {
  std::atomic<uint64_t> sequence;  // Stored last: the rank has reached this call.
  uint64_t call;                   // A CallWord: see call_word.h.
  uint64_t count;
  uint64_t counts_hash;
  uint64_t place_of_in;   // RegionOffset of `in`, in memory from allocate_shared(); 0: elsewhere.
  uint64_t place_of_out;  // The same of `out`.
  uint64_t step_base;     // Values of `produced` and `consumed` at the start of this call.
  std::byte inlined[8];
};
static_assert(sizeof(CallLine) == kCacheLine);

// A rank's progress in a pipelined call; written by it, read by all.
struct alignas(kCacheLine) ProgressLine {
  std::atomic<uint64_t> produced;  // Chunks put into its own slots.
  std::atomic<uint64_t> consumed;  // Chunks taken from (or reduced in) others' slots.
  std::atomic<uint64_t> finished;  // Last call for which it is done reading others' slots.
};

class Segment {
 public:
  // Fails with ErrorCode::system if the kernel refuses.
  static Outcome<std::shared_ptr<Segment>> create(const SegmentShape& shape);
  // Maps the segment of another process, after checking seals, size, magic, version and shape. Does
  // not take ownership of `fd`, which may be closed afterwards.
  static Outcome<std::shared_ptr<Segment>> open(int fd, const SegmentShape& shape);
  ~Segment();
  Segment(Segment&&) = delete;

  const SegmentShape& shape() const { return shape_; }
  int ranks() const { return shape_.ranks; }

  // Descriptor to pass on, of a segment made by create(), until close_fd().
  int fd() const { return fd_; }
  void close_fd();

  // ---- abort: any thread of any rank

  // Records the first failure and wakes every thread that waits in this segment.
  void abort(const Failure& failure);
  const std::atomic<uint32_t>& abort_word() const;
  // Failure that any rank passed to abort(). Waits up to 100 ms while it is being written.
  std::optional<Failure> failure() const;

  // ---- point to point

  // For the rank's receiving and sending threads; in this class only abort() rings it.
  Doorbell& doorbell(int rank) const;
  // Page-aligned area of shape().extra_bytes.
  std::span<std::byte> extra() const { return {base_ + layout_.extra, shape_.extra_bytes}; }

  // ---- collectives: see ShmGroup

  Doorbell& collective_bell() const;
  CallLine& call_line(int rank, uint64_t sequence) const;  // One of two, alternating.
  ProgressLine& progress(int rank) const;
  std::byte* small_data(int rank, uint64_t sequence) const;  // One of two, alternating.
  std::byte* chunk(int rank, uint64_t index) const;          // One of kChunkSlots, in turn.
  uint64_t* counts(int rank, uint64_t sequence) const;       // ranks() values; one of two.

 private:
  struct Head;
  // Offsets of the parts, in bytes.
  struct Layout {
    size_t bells, lines, progress, counts, small, chunks, extra, end;
  };
  Segment(std::byte* base, int fd, const SegmentShape& shape);

  static Layout layout_of(const SegmentShape& shape);
  Head& head() const { return *reinterpret_cast<Head*>(base_); }
  size_t line_index(int rank, uint64_t sequence) const {
    return (sequence % 2) * static_cast<size_t>(shape_.ranks) + static_cast<size_t>(rank);
  }

  std::byte* base_;
  int fd_;
  SegmentShape shape_;
  Layout layout_;
};

}  // namespace muster::worker
