// Byte streams between the members of a group: one from every rank to every other, made when first
// used, reliable and in order. Non-blocking: whoever performs an operation moves what can be moved
// and then waits for more, so all bytes are moved by the caller's thread.
//
//   links.observe();
//   ... write() and read() until neither moves anything ...
//   links.arm({reading, writing});
//   links.sleep(deadline, true);      // and again
//
// Two kinds: SocketLinks (tcp_links.h) for groups on several nodes and
// ShmLinks (shm_links.h) for groups on one. Threads: one at a time, save for wake() and sleep():
// the one that armed may sleep while another one reads and writes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>

#include <sys/uio.h>

#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Whether an operation must end, and why: set once, from any thread. Whoever sets it wakes those
// who wait.
class AbortSwitch {
 public:
  // False: it was set before, and keeps its first failure.
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

class ByteLinks {
 public:
  ByteLinks() = default;
  ByteLinks(const ByteLinks&) = delete;
  ByteLinks& operator=(const ByteLinks&) = delete;
  virtual ~ByteLinks() = default;

  // Ranks whose bytes, or whose room for bytes, somebody waits for.
  struct Interest {
    std::span<const int> reading;
    std::span<const int> writing;
  };

  // Moves some of the parts, in order; how many bytes (0: none now). A failure of code peer_failed:
  // the other end is gone, or refuses; `system`: the kernel will not give a socket.
  virtual Outcome<size_t> write(int peer, std::span<const iovec> parts) = 0;
  virtual Outcome<size_t> read(int peer, std::span<const iovec> parts) = 0;
  // Copies what has come and was not read, as far as it fits, and leaves it there. How many bytes;
  // links on which collectives do not run have no need of it.
  virtual size_t peek(int, std::span<std::byte>) { return 0; }
  // Whether the peer has closed its stream to us and everything in it was read.
  virtual bool ended(int peer) const = 0;

  // Why nothing will move any more, where the links themselves know; cheap.
  virtual std::optional<Failure> broken() const { return std::nullopt; }

  // Called before a round of write() and read(): what happens after it ends the next sleep().
  virtual void observe() {}
  virtual void arm(const Interest& interest) = 0;
  // Blocks until something that was armed may go on, wake() was called, or `until` has come. May
  // return for no reason. `patient`: may keep the core busy for a short while first.
  virtual void sleep(Deadline until, bool patient) = 0;
  virtual void wake() = 0;

  // How long to go on trying before sleep(): what a wake-up costs, or nothing where the ranks of
  // this node have to share cores.
  std::chrono::nanoseconds patience{0};
  // One moment of that, after having tried in vain for `idle`. The core is given away early: the
  // scheduler likes to put a peer that was just woken on the same one.
  static void linger(std::chrono::nanoseconds idle);
};

}  // namespace muster::worker
