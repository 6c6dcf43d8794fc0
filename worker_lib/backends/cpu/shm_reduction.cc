// reduce and all_reduce between the ranks of a node. Every element is reduced in rank order, so the
// result has the same bits everywhere.
//
// - Small: all ranks put their data into their small areas before the meeting, and each (or only
//   the root) reduces all of it for itself.
// - Larger: chunk by chunk; each chunk is cut into one portion per rank (reduce-scatter and
//   all-gather in memory, as Rabenseifner's algorithm does with messages: Thakur, Rabenseifner,
//   Gropp 2005). A rank copies the others' portions of its data into its slot, reduces its own
//   portion from all slots into the part of its slot that is unused, and copies all results out of
//   the slots. These three steps of successive chunks overlap.
// - Data in memory from allocate_shared() is read in place; if all results belong there too, each
//   rank writes its portion to all of them.
#include <algorithm>
#include <vector>

#include "worker_lib/backends/cpu/shm_copy.h"
#include "worker_lib/backends/cpu/shm_progress.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

// Part of a result that is copied to several places while it is in the first-level cache. It is the
// smallest size for which the loops prefetch; at four times as much, copies evict some of it.
constexpr size_t kDirectBlock = size_t{4} * 1024;
constexpr size_t kLeastChunk = size_t{64} * 1024;

struct Range {
  size_t start = 0;  // Offset in bytes.
  size_t end = 0;
  size_t bytes() const { return end - start; }
};

class ShmReduction {
 public:
  explicit ShmReduction(ShmCall& call)
      : call_(call),
        operation_(call.operation),
        element_(size_of(call.operation.dtype)),
        bytes_(call.operation.count * element_),
        ranks_(static_cast<size_t>(call.ranks())),
        me_(static_cast<size_t>(call.me())),
        to_all_(call.operation.kind == OpKind::all_reduce),
        keeps_(to_all_ || call.me() == call.operation.root) {}

  bool run();

 private:
  bool run_small();
  std::byte* small_of(size_t rank) const {
    return call_.small_of(static_cast<int>(rank), bytes_ <= sizeof(CallLine::inlined));
  }

  void cut();
  bool offer();
  bool run_chunks();
  void put_in(uint64_t k);
  bool reduce_own(uint64_t k);
  void collect(uint64_t k);
  Range chunk(uint64_t k) const;
  Range portion(uint64_t k, size_t rank) const;
  const std::byte* input(size_t rank, uint64_t k, const Range& part) const;

  bool all_in_regions() const;
  std::byte* result_of(size_t rank, const Range& part) const;
  bool run_direct();

  ShmCall& call_;
  const Operation& operation_;
  const size_t element_;
  const size_t bytes_;
  const size_t ranks_;
  const size_t me_;
  const bool to_all_;
  const bool keeps_;  // This rank gets the result.
  size_t chunk_bytes_ = 1;
  size_t share_ = 0;  // Bytes of a chunk that one rank reduces.
  uint64_t chunks_ = 0;
  DataSource source_ = DataSource::nowhere;
};

bool ShmReduction::run() {
  if (bytes_ <= call_.segment.shape().small_bytes) return run_small();
  if (!offer() || !call_.meet(source_, chunk_bytes_)) return false;
  return all_in_regions() ? run_direct() : run_chunks();
}

bool ShmReduction::run_small() {
  copy_bytes(small_of(me_), operation_.in, bytes_);
  if (!call_.meet(DataSource::small, 0)) return false;
  if (!keeps_ || bytes_ == 0) return true;
  for (size_t rank = 0; rank < ranks_; ++rank)
    call_.inputs[rank] = rank == me_ ? operation_.in : small_of(rank);
  reduce_buffers(operation_.dtype, operation_.reduce, operation_.out, call_.inputs.data(), ranks_,
                 operation_.count);
  return true;
}

// ---- in chunks

// Chooses the chunk size from what all ranks know, so that all choose the same: as large as fits
// the slots, but at least four chunks unless those would be too small, and all about equal.
void ShmReduction::cut() {
  const size_t largest = std::min(call_.segment.shape().chunk_bytes, kCommonPieceBytes);
  const size_t wanted = std::min(largest, std::max(round_to_lines(bytes_ / 4), kLeastChunk));
  chunks_ = (bytes_ + wanted - 1) / wanted;
  chunk_bytes_ = std::min(largest, round_to_lines((bytes_ + chunks_ - 1) / chunks_));
  chunks_ = (bytes_ + chunk_bytes_ - 1) / chunk_bytes_;
  share_ = round_to_lines((chunk_bytes_ + ranks_ - 1) / ranks_);
}

bool ShmReduction::offer() {
  cut();
  CallLine& mine = call_.line(call_.me());
  mine.place_of_in = call_.regions.place_of(operation_.in, bytes_);
  mine.place_of_out = keeps_ ? call_.regions.place_of(operation_.out, bytes_) : 0;
  source_ = mine.place_of_in != 0 ? DataSource::region : DataSource::chunks;
  if (!call_.wait_for_slots()) return false;
  put_in(0);
  return true;
}

Range ShmReduction::chunk(uint64_t k) const {
  const size_t start = k * chunk_bytes_;
  return {start, std::min(bytes_, start + chunk_bytes_)};
}

// Returns the part of chunk k that `rank` reduces: whole cache lines, except at the end. Its offset
// is the same in every chunk, even a shorter last one: put_in() must not overwrite pending results.
Range ShmReduction::portion(uint64_t k, size_t rank) const {
  const Range whole = chunk(k);
  const size_t start = std::min(whole.end, whole.start + rank * share_);
  return {start, std::min(whole.end, start + share_)};
}

void ShmReduction::put_in(uint64_t k) {
  if (source_ == DataSource::region) return;
  std::byte* slot = call_.segment.chunk(call_.me(), k);
  for (size_t rank = 0; rank < ranks_; ++rank) {
    if (rank == me_) continue;
    const Range part = portion(k, rank);
    copy_bytes(slot + rank * share_, operation_.in + part.start, part.bytes());
  }
}

const std::byte* ShmReduction::input(size_t rank, uint64_t k, const Range& part) const {
  if (rank == me_) return operation_.in + part.start;
  const int peer = static_cast<int>(rank);
  if (call_.source_of(peer) == DataSource::region)
    return call_.shared_at(peer, call_.line(peer).place_of_in, bytes_) + part.start;
  return call_.segment.chunk(peer, k) + me_ * share_;
}

bool ShmReduction::reduce_own(uint64_t k) {
  if (!(k == 0 ? !call_.interrupted() : call_.wait_all_produced(k + 1))) return false;
  const Range own = portion(k, me_);
  for (size_t rank = 0; rank < ranks_; ++rank)
    call_.inputs[rank] = input(rank, k, own);
  reduce_buffers(operation_.dtype, operation_.reduce,
                 call_.segment.chunk(call_.me(), k) + me_ * share_, call_.inputs.data(), ranks_,
                 own.bytes() / element_);
  call_.publish_consumed(k + 1);
  return true;
}

// A result in place does not bypass the cache: the lines to be written have just been read.
void ShmReduction::collect(uint64_t k) {
  if (!keeps_) return;
  const size_t whole = operation_.in == operation_.out ? 0 : bytes_;
  for (size_t step = 0; step < ranks_; ++step) {
    const size_t rank = (me_ + step) % ranks_;
    const Range part = portion(k, rank);
    copy_result(operation_.out + part.start,
                call_.segment.chunk(static_cast<int>(rank), k) + rank * share_, part.bytes(),
                whole);
  }
}

// Three slots suffice: put_in(k + 1) overwrites chunk k - 2, which all ranks have reduced, since
// this rank waited for that before it collected; reduce_own(k) overwrites the result of k - 3,
// which all ranks collected before they put in k.
bool ShmReduction::run_chunks() {
  static_assert(kChunkSlots == 3);
  call_.uses_slots = true;
  call_.steps = chunks_ + 1;
  for (uint64_t k = 0; k < chunks_; ++k) {
    if (k + 1 < chunks_) {
      put_in(k + 1);
      call_.publish_produced(k + 2);
    }
    if (!reduce_own(k)) return false;
    if (k == 0) continue;
    if (!call_.wait_all_consumed(k)) return false;
    collect(k - 1);
  }
  if (!call_.wait_all_consumed(chunks_)) return false;
  collect(chunks_ - 1);
  call_.publish_finished();
  return true;
}

// ---- with everything in shared regions

bool ShmReduction::all_in_regions() const {
  for (int rank = 0; rank < call_.ranks(); ++rank) {
    if (call_.source_of(rank) != DataSource::region) return false;
    const bool receives = to_all_ || rank == operation_.root;
    if (receives && call_.line(rank).place_of_out == 0) return false;
  }
  return true;
}

std::byte* ShmReduction::result_of(size_t rank, const Range& part) const {
  const int peer = static_cast<int>(rank);
  return call_.shared_at(peer, call_.line(peer).place_of_out, bytes_) + part.start;
}

bool ShmReduction::run_direct() {
  call_.steps = 2;
  const size_t share = round_to_lines((bytes_ + ranks_ - 1) / ranks_);
  const Range own{std::min(bytes_, me_ * share), std::min(bytes_, (me_ + 1) * share)};
  for (size_t rank = 0; rank < ranks_; ++rank)
    call_.inputs[rank] = input(rank, 0, own);
  std::byte* const result = result_of(to_all_ ? me_ : static_cast<size_t>(operation_.root), own);
  std::vector<std::byte*> copies;
  for (size_t rank = 0; to_all_ && rank < ranks_; ++rank) {
    if (rank != me_) copies.push_back(result_of(rank, own));
  }
  for (size_t done = 0; done < own.bytes(); done += kDirectBlock) {
    if (call_.interrupted()) return false;
    const size_t block = std::min(kDirectBlock, own.bytes() - done);
    reduce_buffers(operation_.dtype, operation_.reduce, result + done, call_.inputs.data(), ranks_,
                   block / element_);
    for (std::byte* copy : copies)
      copy_bytes(copy + done, result + done, block);
    for (size_t rank = 0; rank < ranks_; ++rank)
      call_.inputs[rank] += block;
  }
  call_.publish_consumed(1);
  return call_.wait_all_consumed(1);
}

}  // namespace

bool reduce_call(ShmCall& call) {
  return ShmReduction(call).run();
}

}  // namespace muster::worker
