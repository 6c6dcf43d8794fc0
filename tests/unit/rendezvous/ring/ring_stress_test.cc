// Readers beside writers that are interrupted at any point: threads that sleep in mid-record while
// others lap the ring, and processes that are stopped and killed. A record's fields follow from its
// group and ordinal, so a record mixed from two calls is detected.
//
// $MUSTER_RING_KILLS: number of writers to kill (40).
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include "rendezvous/base/prng.h"
#include "rendezvous/base/text.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::ring {
namespace {

constexpr size_t kWriters =
    4;  // Each has its own group for collectives; all share one for messages.
constexpr uint64_t kHeldCalls = 1'500;

// `number` is the ordinal of a collective or the tag of a message.
Call expected_call(bool is_message, int32_t group, uint64_t number) {
  uint64_t hash = (static_cast<uint64_t>(group) << 48 ^ number) * 0x9e3779b97f4a7c15ULL;
  hash ^= hash >> 29;
  return {.kind = is_message ? CallKind::send : CallKind::scatter,
          .type = static_cast<ElementType>(1 + hash % 16),
          .reduction = static_cast<Reduction>(1 + hash / 32 % 8),
          .is_v = hash / 512 % 2 == 0,
          .is_synchronous = hash / 1024 % 2 == 0,
          .root = static_cast<int32_t>(hash / 2048 % 4),
          .count = hash};
}

bool is_completed(uint64_t number) {
  return number % 2 == 0;
}
bool is_failed(uint64_t number) {
  return number % 8 == 0;
}

void end_call(RingWriter& writer, const Pending& pending, uint64_t number) {
  if (!is_completed(number)) return;
  is_failed(number) ? writer.failed(pending) : writer.completed(pending);
}

// Some calls end much later, when other calls use their slots.
void record_calls(RingWriter& writer, int32_t group, int32_t messages, uint64_t count) {
  Pending held;
  for (uint64_t ordinal = 1; ordinal <= count; ++ordinal) {
    const Pending pending =
        writer.called(group, ordinal, expected_call(false, group, ordinal), nullptr);
    if (ordinal % kHeldCalls == 0) {
      end_call(writer, held, held.ordinal);
      held = pending;
    } else {
      end_call(writer, pending, ordinal);
    }
    const uint64_t tag = ordinal % 10'000;
    end_call(writer,
             writer.message_called(messages, expected_call(true, messages, tag),
                                   static_cast<int>(tag), nullptr),
             tag);
  }
}

std::vector<int32_t> open_groups(RingWriter& writer) {
  std::vector<int32_t> groups;
  for (size_t i = 0; i <= kWriters; ++i)
    groups.push_back(writer.open_group({.id = std::to_string(i), .size = 4}));
  return groups;
}

// ---- the reader

struct Tally {
  uint64_t records = 0;
  std::vector<std::string> wrong;
};

// Returns "" if the record is that of one call.
std::string complaint(const SeenRecord& seen, uint64_t number, const Ring& ring) {
  const bool is_message = seen.call.kind == CallKind::send;
  const uint64_t key = is_message ? static_cast<uint64_t>(seen.tag) : seen.ordinal;
  if (seen.call != expected_call(is_message, seen.group, key)) return "parts of two calls";
  const bool ended = lap_of(seen.completed) == number / kRecords && seen.completed != 0;
  if (ended && !is_completed(key)) return "another call's end";
  if (ended && ticks_of(seen.completed) == 0) return "no time";
  if ((seen.flags & kFailed) != 0 && !is_failed(key)) return "another call's failure";
  if ((seen.flags & kWithdrawn) != 0) return "a call that was not withdrawn";
  const Group& group = ring.groups[static_cast<size_t>(seen.group) % kGroups];
  if (!is_message && group.called.load() < seen.ordinal) return "a call that is not counted";
  return {};
}

void read_ring(const Ring& ring, Tally& tally) {
  const uint64_t generation = ring.head.generation.load(std::memory_order_acquire);
  if (ring.head.attached.load(std::memory_order_acquire) != generation) return;
  for (size_t slot = 0; slot < kRecords; ++slot) {
    uint64_t number = slot;
    const auto seen = read_record(ring.records[slot], &number);
    if (!seen) continue;
    const std::string what = number % kRecords == slot ? complaint(*seen, number, ring) : "a slot";
    std::atomic_thread_fence(std::memory_order_acquire);
    if (ring.head.generation.load(std::memory_order_relaxed) != generation) return;
    ++tally.records;
    if (!what.empty())
      tally.wrong.push_back(what + ": record " + std::to_string(number) + ", ordinal " +
                            std::to_string(seen->ordinal));
  }
}

// REQUIRES: no writer runs; each of them is in the middle of at most one record.
void check_at_rest(const Ring& ring) {
  if (ring.head.attached.load() != ring.head.generation.load()) return;
  size_t unfinished = 0;
  for (const Record& record : ring.records)
    unfinished += record.sequence.load() % 2;
  EXPECT_LE(unfinished, kWriters);
  uint64_t calls = 0;
  for (const Group& group : ring.groups)
    calls += group.called.load();
  for (const PeerCount& count : ring.peers)
    calls += count.called.load();
  EXPECT_GE(calls, ring.head.next_record.load()) << "counters move first";
  EXPECT_LE(calls, ring.head.next_record.load() + kWriters);
}

// ---- in one process, also for ThreadSanitizer

TEST(RingStress, AReaderBesideThreadsSeesOnlyWholeCalls) {
  TestRing ring;
  const auto writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  const std::vector<int32_t> groups = open_groups(*writer);
  constexpr uint64_t kCalls = 10'000;
  std::atomic<size_t> running = kWriters;
  Tally tally;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kWriters; ++i) {
      threads.emplace_back([&, i] {
        record_calls(*writer, groups[i], groups[kWriters], kCalls);
        --running;
      });
    }
    while (running > 0)
      read_ring(*ring, tally);
  }
  read_ring(*ring, tally);
  check_at_rest(*ring);
  EXPECT_EQ(tally.wrong, std::vector<std::string>());
  EXPECT_EQ(ring->head.next_record, 2 * kWriters * kCalls);
  for (size_t i = 0; i < kWriters; ++i)
    EXPECT_EQ(ring->groups[i].called, kCalls);
}

// ---- processes

void nap(uint64_t microseconds) {
  const timespec time{0, static_cast<long>(microseconds) * 1'000};
  nanosleep(&time, nullptr);
}

// Attaches and records until killed; signals make random threads sleep at any point.
int write_without_end(TestRing& ring, uint64_t seed) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGUSR1, [](int) { nap(700); });
  const auto writer = ring.attach();
  if (writer == nullptr) return 1;
  const std::vector<int32_t> groups = open_groups(*writer);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < kWriters; ++i)
    threads.emplace_back(
        [&, i] { record_calls(*writer, groups[i], groups[kWriters], UINT64_MAX); });
  for (Prng prng(seed);;) {
    pthread_kill(threads[prng.below(kWriters)].native_handle(), SIGUSR1);
    nap(prng.below(300));
  }
}

void read_for(const Ring& ring, std::chrono::microseconds time, Tally& tally) {
  const auto end = std::chrono::steady_clock::now() + time;
  do
    read_ring(ring, tally);
  while (std::chrono::steady_clock::now() < end);
}

// Returns early if the child has ended, which it should not.
void await_attachment(const Ring& ring, const TestChild& child) {
  const Head& head = ring.head;
  siginfo_t end{};
  while (head.owner.load() != static_cast<uint64_t>(child.pid()) ||
         head.attached.load() != head.generation.load()) {
    waitid(P_PID, static_cast<id_t>(child.pid()), &end, WEXITED | WNOHANG | WNOWAIT);
    if (end.si_pid != 0) return;
    std::this_thread::yield();
  }
}

uint64_t kills_wanted() {
  const char* const text = std::getenv("MUSTER_RING_KILLS");
  return text == nullptr ? 40 : whole_number<uint64_t>(text).value_or(40);
}

TEST(RingStress, StoppedAndKilledWritersLeaveOnlyWholeCalls) {
  TestRing ring;
  Tally tally;
  Prng prng(7);
  uint64_t dropped = 0;
  const uint64_t kills = kills_wanted();
  for (uint64_t i = 0; i < kills; ++i) {
    TestChild child([&] { return write_without_end(ring, i); });
    // Every fourth child may die before it attaches, or while it clears the ring.
    if (i % 4 != 0) await_attachment(*ring, child);
    for (uint64_t stops = prng.below(4); stops > 0; --stops) {
      read_for(*ring, std::chrono::microseconds(prng.below(10'000)), tally);
      int status = 0;
      kill(child.pid(), SIGSTOP);
      ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
      ASSERT_TRUE(WIFSTOPPED(status)) << "it could not attach";
      read_ring(*ring, tally);
      check_at_rest(*ring);
      kill(child.pid(), SIGCONT);
    }
    read_for(*ring, std::chrono::microseconds(prng.below(10'000)), tally);
    kill(child.pid(), SIGKILL);
    ASSERT_EQ(child.wait(), 1000 + SIGKILL) << "it could not attach";
    read_ring(*ring, tally);
    check_at_rest(*ring);
    dropped += ring->head.dropped;
  }
  const uint64_t attached = ring->head.attached;
  std::printf("%lu writers killed, %lu had attached; %lu records read, %zu wrong; %lu dropped\n",
              kills, attached, tally.records, tally.wrong.size(), dropped);
  std::fflush(stdout);  // Otherwise children forked later would inherit the buffer.
  EXPECT_EQ(tally.wrong, std::vector<std::string>());
  EXPECT_GE(attached, kills / 2);
  EXPECT_GT(tally.records, kRecords);
}

}  // namespace
}  // namespace muster::ring
