#include "worker_lib/backends/cpu/shm_regions.h"

#include <algorithm>

#include <sys/mman.h>

#include "worker_lib/backends/cpu/memory_file.h"
#include "worker_lib/fork_guard.h"

namespace muster::worker {
namespace {

constexpr int kOffsetBits = 44;
constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;
constexpr uint64_t kNumbers = uint64_t{1} << (64 - kOffsetBits);

}  // namespace

size_t SharedRegions::stride(size_t bytes) {
  return std::max(page_bytes(), round_to_pages(bytes));
}

// The file holds the blocks, then a page (more for over a thousand ranks) of release marks.
size_t SharedRegions::file_bytes(int ranks, size_t bytes) {
  const auto count = static_cast<size_t>(ranks);
  return count * stride(bytes) + stride(count * sizeof(uint32_t));
}

SharedRegions::~SharedRegions() {
  for (const Region& region : regions_)
    munmap(region.base, file_bytes(ranks_, region.bytes));
}

Outcome<std::byte*> SharedRegions::map(uint64_t number, int fd, size_t bytes) {
  const size_t size = file_bytes(ranks_, bytes);
  const Outcome<std::byte*> base = map_memory_file(fd, size);
  if (!base) return base;
  const std::lock_guard lock(mutex_);
  unmap_where_all_left();
  regions_.push_back({number, *base, bytes});
  mapped_.store(regions_.size());
  return *base + static_cast<size_t>(me_) * stride(bytes);
}

void SharedRegions::release(uint64_t number) {
  // The parent owns the block, and one of its threads may have held the mutex at the fork.
  if (in_forked_child()) return;
  const std::lock_guard lock(mutex_);
  for (const Region& region : regions_) {
    if (region.number == number) leavers(region)[me_].store(1);
  }
  unmap_where_all_left();
}

std::atomic<uint32_t>* SharedRegions::leavers(const Region& region) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(region.base + static_cast<size_t>(ranks_) *
                                                                    stride(region.bytes));
}

void SharedRegions::unmap_where_all_left() {
  std::erase_if(regions_, [this](const Region& region) {
    const std::atomic<uint32_t>* left = leavers(region);
    if (!std::all_of(left, left + ranks_, [](const auto& one) { return one.load() != 0; })) {
      return false;
    }
    munmap(region.base, file_bytes(ranks_, region.bytes));
    return true;
  });
  mapped_.store(regions_.size());
}

RegionOffset SharedRegions::place_of(const std::byte* data, size_t bytes) const {
  if (mapped_.load(std::memory_order_relaxed) == 0) return 0;
  const std::lock_guard lock(mutex_);
  for (const Region& region : regions_) {
    const std::byte* start = region.base + static_cast<size_t>(me_) * stride(region.bytes);
    if (data < start || data + bytes > start + region.bytes) continue;
    if (region.number >= kNumbers) return 0;
    return region.number << kOffsetBits | static_cast<uint64_t>(data - start);
  }
  return 0;
}

std::byte* SharedRegions::at(RegionOffset place, int rank, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const uint64_t offset = place & kOffsetMask;
  for (const Region& region : regions_) {
    if (region.number != place >> kOffsetBits) continue;
    if (offset > region.bytes || bytes > region.bytes - offset) return nullptr;
    return region.base + static_cast<size_t>(rank) * stride(region.bytes) + offset;
  }
  return nullptr;
}

}  // namespace muster::worker
