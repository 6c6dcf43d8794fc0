// The links of a group on one node: a byte ring in the group's segment for every ordered pair of
// ranks, with one writer and one reader. A rank sleeps at its doorbell; a peer that writes to a
// ring towards it, or reads from a ring from it, increments its News and rings.
//
// Unused rings cost no memory: their pages are never touched. The size of a ring shrinks with the
// square of the number of ranks; messages of any size stream through.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "worker_lib/backends/cpu/links.h"
#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/backends/cpu/waiting.h"

namespace muster::worker {

class ShmLinks final : public ByteLinks {
 public:
  // Returns the SegmentShape::extra_bytes to request.
  static size_t bytes_for(int ranks);

  // REQUIRES: segment->extra() has bytes_for(ranks).
  ShmLinks(std::shared_ptr<Segment> segment, int me);

  Outcome<size_t> write(int peer, std::span<const iovec> parts) override;
  Outcome<size_t> read(int peer, std::span<const iovec> parts) override;
  // A ring never ends: the watch reports ranks that died or left.
  bool ended(int) const override { return false; }
  std::optional<Failure> broken() const override;

  void observe() override { seen_ = news(me_).count.load(); }
  void arm(const Interest&) override {}
  void sleep(Deadline until, bool patient) override;
  void wake() override { tell(me_, true); }

 private:
  // Number of updates of the rings from and to a rank, one counter per rank.
  struct alignas(kCacheLine) News {
    std::atomic<uint64_t> count;
  };
  // Bytes since the ring was made; only the writer stores `written`, only the reader `taken`.
  struct Ring {
    alignas(kCacheLine) std::atomic<uint64_t> written;
    alignas(kCacheLine) std::atomic<uint64_t> taken;
  };

  static size_t ring_bytes(int ranks);
  template <typename Copy>
  size_t stream(int peer, std::span<const iovec> parts, std::atomic<uint64_t>& count,
                uint64_t start, size_t available, size_t step, const Copy& copy);
  Ring& ring(int from, int to) const;
  std::byte* ring_data(Ring& ring) const { return reinterpret_cast<std::byte*>(&ring + 1); }
  News& news(int rank) const { return reinterpret_cast<News*>(segment_->extra().data())[rank]; }
  void tell(int rank, bool wakes);

  std::shared_ptr<Segment> segment_;
  int me_;
  size_t capacity_;
  uint64_t seen_ = 0;
};

}  // namespace muster::worker
