// The memory of allocate_shared() that a process has mapped: for each region one block per rank,
// all mapped here, so that the others can read a buffer in one rank's block.
//
// A rank marks in the region itself that it has released its block; the mapping is removed when all
// ranks have. So whatever a rank still owns is mapped by all others, without further messages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "worker_lib/failure.h"

namespace muster::worker {

// A buffer's place: a region's number and the offset in the publishing rank's block; 0: in none.
using RegionOffset = uint64_t;

class SharedRegions {
 public:
  SharedRegions(int ranks, int me) : ranks_(ranks), me_(me) {}
  ~SharedRegions();
  SharedRegions(const SharedRegions&) = delete;
  SharedRegions& operator=(const SharedRegions&) = delete;

  // The size of a region's memfd with blocks of `bytes`.
  static size_t file_bytes(int ranks, size_t bytes);
  static size_t stride(size_t bytes);

  // Maps a region; `number` is new and equal on all ranks. Returns the start of this rank's block.
  Outcome<std::byte*> map(uint64_t number, int fd, size_t bytes);
  // This rank releases its block; no effect in a forked child. Any thread.
  void release(uint64_t number);

  // Where [data, data + bytes) lies, if all of it is in this rank's block of a region.
  RegionOffset place_of(const std::byte* data, size_t bytes) const;
  // The local address of `place` as published by `rank`. Null: no such region here, or `bytes` from
  // there exceed the block.
  std::byte* at(RegionOffset place, int rank, size_t bytes) const;

 private:
  struct Region {
    uint64_t number;
    std::byte* base;
    size_t bytes;  // Of a block.
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
