// Byte streams between the members of a group: one from every rank to every other, opened on first
// use, reliable and ordered. Non-blocking: the thread that performs an operation moves what can
// move and then waits for more, so the caller's thread moves all bytes.
//
//   links.observe();
//   ... write() and read() until neither moves anything ...
//   links.arm({reading, writing});
//   links.sleep(deadline, true);      // and again
//
// Two kinds: SocketLinks (tcp_links.h) for groups on several nodes and ShmLinks (shm_links.h) for
// groups on one. One thread at a time, with two exceptions: any thread may call wake(), and the
// thread that called arm() may sleep() while another reads and writes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>

#include <sys/uio.h>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Says that operations must end, and why. Set once, by any thread.
class AbortSwitch {
 public:
  // Returns false, and keeps the first failure, if it was already set.
  bool set(const Failure& failure) {
    {
      const std::lock_guard lock(mutex_);
      if (is_set()) return false;
      failure_ = failure;
      set_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
    return true;
  }
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  // REQUIRES: is_set().
  Failure failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  // Waits; returns true if it was set by `until`.
  bool wait_until(Deadline until) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, until, [&] { return is_set(); });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Failure failure_;
  std::atomic<bool> set_{false};
};

[[gnu::cold]] inline Failure ended_early(const Peer& peer) {
  return {ErrorCode::peer_failed,
          describe(peer) + " closed its connection (end of stream)",
          {peer.rank}};
}

// Fills `parts` with what is left of a head and the `bytes` after it when `moved` of both are gone.
template <typename Head>
std::span<const iovec> unmoved(std::array<iovec, 2>& parts, Head& head, const std::byte* data,
                               size_t bytes, size_t moved) {
  size_t used = 0;
  if (moved < sizeof head) {
    parts[used++] = {reinterpret_cast<char*>(&head) + moved, sizeof head - moved};
    moved = 0;
  } else {
    moved -= sizeof head;
  }
  if (moved < bytes) parts[used++] = {const_cast<std::byte*>(data) + moved, bytes - moved};
  return {parts.data(), used};
}

class ByteLinks {
 public:
  ByteLinks() = default;
  ByteLinks(ByteLinks&&) = delete;
  virtual ~ByteLinks() = default;

  // Peers that the caller waits for: for bytes to read, or for room to write.
  struct Interest {
    std::span<const int> reading;
    std::span<const int> writing;
  };

  // Moves some of the parts, in order; returns the number of bytes (0: none for now). Fails with
  // `peer_failed` if the other end is gone or refuses, with `system` if the kernel has no socket.
  virtual Outcome<size_t> write(int peer, std::span<const iovec> parts) = 0;
  virtual Outcome<size_t> read(int peer, std::span<const iovec> parts) = 0;
  // Copies up to the span's size of arrived bytes without consuming them; returns their number.
  // Links that carry no collectives need not implement it.
  virtual size_t peek(int, std::span<std::byte>) { return 0; }
  // True if the peer has closed its stream to us and all of it has been read.
  virtual bool ended(int peer) const = 0;

  // Failure after which nothing can move, if the links themselves know of one; cheap.
  virtual std::optional<Failure> broken() const { return std::nullopt; }

  // Precedes a round of write() and read(): any event after it ends the next sleep().
  virtual void observe() {}
  virtual void arm(const Interest& interest) = 0;
  // Blocks until an armed stream can proceed, wake() is called, or `until` has passed. May return
  // spuriously. `patient`: may keep the core busy for a short while first.
  virtual void sleep(Deadline until, bool patient) = 0;
  virtual void wake() = 0;

  // Time to poll before sleep(): the cost of a wake-up, or zero if ranks of this node share cores.
  std::chrono::nanoseconds patience{0};
};

}  // namespace muster::worker
