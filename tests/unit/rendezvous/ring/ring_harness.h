// Helpers for tests of rings: a ring as an agent makes it, mapped writable; a decoded record; and
// child processes that attach to the ring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/ring/record_fd.h"
#include "rendezvous/ring/ring_writer.h"

namespace muster::ring {

inline constexpr uint64_t kTestNonce = 0x1f00c3a29b7e4d51;

class TestRing {
 public:
  TestRing() : fd_(std::move(make_ring(kTestNonce).value())) {
    ring_ = map_ring({fd_.get(), kTestNonce}, /*writable=*/true, why);
    EXPECT_NE(ring_, nullptr) << why;
  }
  TestRing(const TestRing&) = delete;
  ~TestRing() { unmap_ring(ring_); }

  Ring& operator*() const { return *ring_; }
  Ring* operator->() const { return ring_; }
  int fd() const { return fd_.get(); }
  std::string text() const { return to_text({fd_.get(), kTestNonce}); }

  // Returns nullptr and sets `why` if refused.
  std::unique_ptr<RingWriter> attach() {
    return RingWriter::attach(text(), Source::worker_lib, why);
  }

  std::string why = {};

 private:
  UniqueFd fd_;
  Ring* ring_ = nullptr;
};

inline std::string text_in(const Word* words, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t word = words[i];
    text.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return text.c_str();
}

struct SeenRecord {
  int32_t group = -1;
  Call call;
  uint64_t flags = 0;
  size_t site = kNoSite;
  int tag = 0;
  uint64_t ordinal = 0;
  uint64_t called_ticks = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
};

// Decodes `record` if it is whole: the reading side of the seqlock. `number` gets its ordinal.
inline std::optional<SeenRecord> read_record(const Record& record, uint64_t* number = nullptr) {
  const uint64_t sequence = record.sequence.load(std::memory_order_acquire);
  if (sequence == 0 || sequence % 2 != 0) return std::nullopt;
  const auto load = [](const Word& word) { return word.load(std::memory_order_relaxed); };
  SeenRecord seen;
  const uint64_t what = load(record.what);
  const uint64_t peer = load(record.peer);
  seen.ordinal = load(record.ordinal);
  seen.call.count = load(record.count);
  seen.called_ticks = load(record.called_ticks);
  seen.started = load(record.started);
  seen.completed = load(record.completed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;

  seen.group = static_cast<int32_t>(what & 0xffff);
  seen.call.kind = static_cast<CallKind>(what >> 16 & 0xff);
  seen.call.type = static_cast<ElementType>(what >> 24 & 0xff);
  seen.call.reduction = static_cast<Reduction>(what >> 32 & 0xff);
  seen.flags = what >> 40 & 0xff;
  seen.call.is_v = (seen.flags & kIsV) != 0;
  seen.call.is_synchronous = (seen.flags & kIsSynchronous) != 0;
  seen.site = what >> 48;
  seen.call.root = static_cast<int32_t>(static_cast<uint32_t>(peer) - 1);
  seen.tag = static_cast<int>(peer >> 32);
  if (number != nullptr) *number = sequence / 2 - 1;
  return seen;
}

// The two parts of `started` and `completed`.
inline uint64_t lap_of(uint64_t word) {
  return word >> 48;
}
inline uint64_t ticks_of(uint64_t word) {
  return word & ((uint64_t{1} << 48) - 1);
}

// A forked process. REQUIRES: no other thread runs; it could hold a lock that the child needs.
class TestChild {
 public:
  explicit TestChild(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ == 0) _exit(body());
  }
  TestChild(const TestChild&) = delete;
  ~TestChild() {
    if (pid_ > 0) kill_and_reap();
  }

  pid_t pid() const { return pid_; }
  // Returns the exit code, or 1000 plus the signal.
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void kill_and_reap() {
    kill(pid_, SIGKILL);
    wait();
  }

 private:
  pid_t pid_;
};

// A pipe: pass() waits for a byte that open() writes.
class Gate {
 public:
  Gate() { EXPECT_EQ(pipe(ends_), 0); }
  Gate(const Gate&) = delete;
  ~Gate() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void open(int waiters = 1) const {
    for (int i = 0; i < waiters; ++i)
      EXPECT_EQ(write(ends_[1], "g", 1), 1);
  }
  void pass() const {
    char byte = 0;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace muster::ring
