// Byte streams between the members of a group: one from every rank to every other, made when first
// used, reliable and in order. Non-blocking: the thread that performs an operation moves what can
// be moved and then waits for more, so the caller's thread moves all bytes.
//
//   links.observe();
//   ... write() and read() until neither moves anything ...
//   links.arm({reading, writing});
//   links.sleep(deadline, true);      // and again
//
// Two kinds: SocketLinks (tcp_links.h) for groups on several nodes and ShmLinks (shm_links.h) for
// groups on one. Threads: one at a time, except for wake() and sleep(): the thread that armed may
// sleep while another reads and writes.
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

// Whether an operation must end, and why: set once, from any thread, which then wakes those that
// wait.
class AbortSwitch {
 public:
  // False: it was already set, and keeps its first failure.
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
  // Whether it was set by then.
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

// The end of a stream that a peer should have gone on with.
[[gnu::cold]] inline Failure ended_early(const Peer& peer) {
  return {ErrorCode::peer_failed,
          describe(peer) + " closed its connection (end of stream)",
          {peer.rank}};
}

// What is left of a head and the bytes behind it when `moved` bytes of both have been moved; in
// `parts`.
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
  ByteLinks(const ByteLinks&) = delete;
  ByteLinks& operator=(const ByteLinks&) = delete;
  virtual ~ByteLinks() = default;

  // Ranks from which the caller waits for bytes, or for room to write.
  struct Interest {
    std::span<const int> reading;
    std::span<const int> writing;
  };

  // Moves some of the parts, in order; returns how many bytes (0: none now). Fails with
  // peer_failed: the other end is gone or refuses; `system`: the kernel provides no socket.
  virtual Outcome<size_t> write(int peer, std::span<const iovec> parts) = 0;
  virtual Outcome<size_t> read(int peer, std::span<const iovec> parts) = 0;
  // Copies unread bytes that have arrived, up to the size of the span, and leaves them unread.
  // Returns how many; links that carry no collectives need not implement it.
  virtual size_t peek(int, std::span<std::byte>) { return 0; }
  // Whether the peer has closed its stream to us and everything in it has been read.
  virtual bool ended(int peer) const = 0;

  // Why nothing can move any more, if the links themselves know; cheap.
  virtual std::optional<Failure> broken() const { return std::nullopt; }

  // Called before a round of write() and read(): what happens after it ends the next sleep().
  virtual void observe() {}
  virtual void arm(const Interest& interest) = 0;
  // Blocks until something that was armed can proceed, wake() was called, or `until` has passed.
  // May return spuriously. `patient`: may keep the core busy for a short while first.
  virtual void sleep(Deadline until, bool patient) = 0;
  virtual void wake() = 0;

  // How long to keep polling before sleep(): the cost of a wake-up, or zero where the ranks of this
  // node have to share cores.
  std::chrono::nanoseconds patience{0};
};

}  // namespace muster::worker
