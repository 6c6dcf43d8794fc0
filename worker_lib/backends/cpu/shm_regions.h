// The memory of allocate_shared() that a process has mapped: regions with one block per rank. Every
// rank maps all blocks of a region, so that it can read buffers in the blocks of others.
//
// A rank marks in the region itself that it has released its block; each process unmaps the region
// once all ranks have. So all ranks keep mapped what any rank still owns, without messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "worker_lib/failure.h"

namespace muster::worker {

// Place of a buffer: region number and offset in the publishing rank's block; 0: in no region.
using RegionOffset = uint64_t;

class SharedRegions {
 public:
  SharedRegions(int ranks, int me) : ranks_(ranks), me_(me) {}
  ~SharedRegions();
  SharedRegions(SharedRegions&&) = delete;

  // Size of the memfd of a region with blocks of `bytes`.
  static size_t file_bytes(int ranks, size_t bytes);
  static size_t stride(size_t bytes);

  // Maps a region and returns this rank's block. REQUIRES: a new `number`, equal on all ranks.
  Outcome<std::byte*> map(uint64_t number, int fd, size_t bytes);
  // Releases this rank's block; no-op in a forked child. Any thread.
  void release(uint64_t number);

  // Place of [data, data + bytes), if all of it is in this rank's block of a region.
  RegionOffset place_of(const std::byte* data, size_t bytes) const;
  // Local address of `place` as published by `rank`; null: unknown region, or beyond the block.
  std::byte* at(RegionOffset place, int rank, size_t bytes) const;

 private:
  struct Region {
    uint64_t number;
    std::byte* base;
    size_t bytes;  // Size of a block.
  };

  void unmap_where_all_left();
  std::atomic<uint32_t>* leavers(const Region& region) const;

  const int ranks_;
  const int me_;
  mutable std::mutex mutex_;
  std::atomic<size_t> mapped_{0};  // regions_.size(), readable without the lock.
  std::vector<Region> regions_;
};

}  // namespace muster::worker
