// News of a process's death before the kernel has freed its memory: that takes up to 0.7 s per GiB,
// and only then are its sockets closed. Each process holds a robust mutex in memory that it shares
// with its peers: when the thread that holds it exits, the kernel first marks the mutex and wakes a
// waiter (pthread_mutexattr_setrobust(3); "robust futexes" in the kernel's documentation).
//
// The news may be wrong, since exec() ends a thread, too: look at the process. It may also be
// missing, where the kernel refuses memory, a descriptor or a thread: then the sockets bring it.
// Without futex_waitv(2) of Linux 5.16 it is up to 20 ms old.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <pthread.h>

#include "rendezvous/base/unique_fd.h"

namespace muster::worker {

// A robust mutex in a memory file of its own, mapped. One thread at a time.
class Lifeline {
 public:
  // This process's; no value: refused by the kernel.
  static std::optional<Lifeline> make();
  // A peer's, from its descriptor; no value: it is none.
  static std::optional<Lifeline> open(const UniqueFd& file);
  Lifeline(Lifeline&& other) noexcept
      : file_(std::move(other.file_)), mutex_(std::exchange(other.mutex_, nullptr)) {}
  Lifeline& operator=(Lifeline&& other) noexcept {
    file_ = std::move(other.file_);
    std::swap(mutex_, other.mutex_);
    return *this;
  }
  ~Lifeline();

  // Holds the mutex until this thread exits or calls release().
  void hold();
  // REQUIRES: this thread holds it.
  void release();
  // The descriptor to be passed to peers. REQUIRES: made by make().
  int fd() const { return file_.get(); }

  // The mutex's futex: the holder's thread id, FUTEX_WAITERS and FUTEX_OWNER_DIED.
  uint32_t* word() const { return reinterpret_cast<uint32_t*>(mutex_); }

 private:
  Lifeline(UniqueFd file, pthread_mutex_t* mutex) : file_(std::move(file)), mutex_(mutex) {}

  UniqueFd file_;
  pthread_mutex_t* mutex_ = nullptr;
};

// Waits for the deaths of peers, on a thread for up to 127 of them. Any thread.
class LifelineWatch {
 public:
  // `cut` is called once for each peer whose mutex was marked, on a thread of this object's.
  explicit LifelineWatch(std::function<void(uint64_t id)> cut);
  LifelineWatch(const LifelineWatch&) = delete;
  LifelineWatch& operator=(const LifelineWatch&) = delete;
  ~LifelineWatch();

  void add(uint64_t id, Lifeline peer);
  // No call of `cut` for it begins after this.
  void remove(uint64_t id);

 private:
  struct Peer {
    uint64_t id = 0;
    Lifeline line;
  };
  struct Waiter;

  void wait(Waiter& waiter);
  bool look(Waiter& waiter, std::vector<uint32_t*>& words, std::vector<uint32_t>& values);

  const std::function<void(uint64_t id)> cut_;
  std::mutex mutex_;  // Guards all below, and the waiters' lists.
  std::vector<std::unique_ptr<Waiter>> waiters_;
};

}  // namespace muster::worker
