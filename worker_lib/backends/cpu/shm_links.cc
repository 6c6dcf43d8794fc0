#include "worker_lib/backends/cpu/shm_links.h"

#include <algorithm>
#include <cstring>

#include "rendezvous/base/error.h"
#include "worker_lib/copy_bytes.h"

namespace muster::worker {
namespace {

// Bytes after which the other end is notified, so that it copies out while we copy in.
constexpr size_t kPortion = 32 * 1024;
constexpr size_t kRingBytesMax = 256 * 1024;
constexpr size_t kRingBytesMin = 16 * 1024;
constexpr size_t kAllRingsBytes = 16 << 20;

}  // namespace

size_t ShmLinks::ring_bytes(int ranks) {
  const auto pairs = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  size_t bytes = kRingBytesMax;
  while (bytes > kRingBytesMin && bytes * pairs > kAllRingsBytes)
    bytes /= 2;
  return bytes;
}

size_t ShmLinks::bytes_for(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  return n * sizeof(News) + n * n * (sizeof(Ring) + ring_bytes(ranks));
}

ShmLinks::ShmLinks(std::shared_ptr<Segment> segment, int me)
    : segment_(std::move(segment)), me_(me), capacity_(ring_bytes(segment_->ranks())) {
  CHECK(segment_->extra().size() >= bytes_for(segment_->ranks()));
}

ShmLinks::Ring& ShmLinks::ring(int from, int to) const {
  const auto n = static_cast<size_t>(segment_->ranks());
  const size_t index = static_cast<size_t>(from) * n + static_cast<size_t>(to);
  std::byte* rings = segment_->extra().data() + n * sizeof(News);
  return *reinterpret_cast<Ring*>(rings + index * (sizeof(Ring) + capacity_));
}

// The increment is sequentially consistent and follows the ring's counters: see ring(Doorbell&).
void ShmLinks::tell(int rank, bool wakes) {
  news(rank).count.fetch_add(1);
  if (wakes) worker::ring(segment_->doorbell(rank));
}

// Moves up to `available` bytes of the parts, from position `start` of the ring, with
// copy(offset in the ring, address in the part, bytes), and advances `count`, which is at `start`.
// Wakes the peer where `count` passes a multiple of `step`.
template <typename Copy>
size_t ShmLinks::stream(int peer, std::span<const iovec> parts, std::atomic<uint64_t>& count,
                        uint64_t start, size_t available, size_t step, const Copy& copy) {
  uint64_t position = start;
  uint64_t told = start;
  const auto tell_peer = [&] {
    count.store(position, std::memory_order_release);
    tell(peer, told / step != position / step);
    told = position;
  };
  for (const iovec& part : parts) {
    auto* here = static_cast<std::byte*>(part.iov_base);
    for (size_t left = part.iov_len; left > 0 && available > 0;) {
      const size_t at = static_cast<size_t>(position % capacity_);
      const size_t bytes = std::min({left, available, capacity_ - at, kPortion});
      copy(at, here, bytes);
      here += bytes;
      left -= bytes;
      available -= bytes;
      position += bytes;
      if (position - told >= kPortion) tell_peer();
    }
  }
  if (position > told) tell_peer();
  return static_cast<size_t>(position - start);
}

Outcome<size_t> ShmLinks::write(int peer, std::span<const iovec> parts) {
  Ring& to = ring(me_, peer);
  std::byte* data = ring_data(to);
  const uint64_t written = to.written.load(std::memory_order_relaxed);
  const auto used = static_cast<size_t>(written - to.taken.load(std::memory_order_acquire));
  return stream(peer, parts, to.written, written, capacity_ - used, 1,
                [data](size_t at, const std::byte* part, size_t bytes) {
                  copy_bytes(data + at, part, bytes);
                });
}

// A writer sleeps only once the ring is full. Waking it for each message read would cost more than
// the message; if this reader stops within the first quarter, the writer looks again after 50 ms.
Outcome<size_t> ShmLinks::read(int peer, std::span<const iovec> parts) {
  Ring& from = ring(peer, me_);
  const std::byte* data = ring_data(from);
  const uint64_t taken = from.taken.load(std::memory_order_relaxed);
  const auto there = static_cast<size_t>(from.written.load(std::memory_order_acquire) - taken);
  return stream(
      peer, parts, from.taken, taken, there, capacity_ / 4,
      [data](size_t at, std::byte* part, size_t bytes) { copy_bytes(part, data + at, bytes); });
}

std::optional<Failure> ShmLinks::broken() const {
  if (segment_->abort_word().load(std::memory_order_acquire) == 0) return std::nullopt;
  return segment_->failure();
}

void ShmLinks::sleep(Deadline until, bool patient) {
  const std::atomic<uint64_t>& count = news(me_).count;
  wait_until(segment_->doorbell(me_), segment_->abort_word(), patient ? kPatience : Patience{},
             until, [&] { return count.load() != seen_; });
}

}  // namespace muster::worker
