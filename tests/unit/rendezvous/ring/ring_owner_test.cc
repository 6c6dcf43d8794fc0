// Tests which process may attach to a ring, with real processes.
#include "rendezvous/ring/ring_owner.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/process_stat.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::ring {
namespace {

uint64_t own_pid_in_head() {
  return static_cast<uint64_t>(getpid());
}

// Returns the pid of a reaped process.
pid_t pid_of_nobody() {
  TestChild child([] { return 0; });
  const pid_t pid = child.pid();
  child.wait();
  return pid;
}

// Writes the head that a process which attached and ended leaves, except for `owner`.
void leave_behind(Ring& ring, uint64_t owner, uint64_t started) {
  ring.head.generation = 4;
  ring.head.attached = 4;
  ring.head.owner_started = started;
  ring.head.owner = owner;
}

TEST(RingOwner, TheFirstProcessRecordsItsIdentity) {
  TestRing ring;
  const uint64_t before = monotonic_ns();
  const auto writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  EXPECT_TRUE(writer->is_attached());
  const Head& head = ring->head;
  EXPECT_EQ(head.owner, own_pid_in_head());
  EXPECT_EQ(head.owner_started, start_ticks(stat_fields(getpid())));
  EXPECT_EQ(head.source, static_cast<uint64_t>(Source::worker_lib));
  EXPECT_EQ(head.generation, 1U);
  EXPECT_EQ(head.attached, 1U);
  EXPECT_GE(head.attached_ns, before);
  EXPECT_LE(head.attached_ns, monotonic_ns());
  EXPECT_EQ(head.ticks_are_tsc, tsc_is_invariant() ? 1U : 0U);
  EXPECT_LE(head.attached_ticks, ticks(tsc_is_invariant()));
  EXPECT_EQ(head.futex, 1U);
}

TEST(RingOwner, AnInvalidRingIsRefusedInOneLine) {
  std::string why;
  EXPECT_EQ(RingWriter::attach("100", Source::worker_lib, why), nullptr);
  EXPECT_EQ(why, "'100' is no descriptor and nonce, as in 100:1f00c3a29b7e4d51");
  EXPECT_EQ(RingWriter::attach("999999:1", Source::worker_lib, why), nullptr);
  EXPECT_EQ(why, "descriptor 999999 cannot be used for records: the program has closed it");
}

TEST(RingOwner, AProcessAttachesOnce) {
  TestRing ring;
  const auto writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  EXPECT_EQ(ring.attach(), nullptr);
  EXPECT_EQ(ring.why,
            "this process records its calls already, by another library or before an exec()");
  EXPECT_EQ(ring->head.generation, 1U);
}

TEST(RingOwner, NcclsPluginAndPythonsHookShareARing) {
  using enum Source;
  const Source all[] = {worker_lib, python_hook, nccl_plugin};
  for (const Source first : all) {
    for (const Source second : all) {
      TestRing ring;
      const auto owner = RingWriter::attach(ring.text(), first, ring.why, /*tsc=*/false);
      ASSERT_NE(owner, nullptr) << ring.why;
      const int32_t group = owner->open_group({.id = "a", .size = 1, .own_rank = 0});
      const auto guest = RingWriter::attach(ring.text(), second, ring.why);
      const bool are_beside = first != worker_lib && second != worker_lib && first != second;
      ASSERT_EQ(guest != nullptr, are_beside);
      EXPECT_EQ(ring->head.source, static_cast<uint64_t>(first));
      EXPECT_EQ(ring->head.generation, 1U);
      if (!are_beside) continue;
      EXPECT_NE(guest->open_group({.id = "b", .size = 1, .own_rank = 0}), group);
      // The guest uses the owner's clock.
      EXPECT_LE(ring->groups[1].state_ticks, monotonic_ns());
    }
  }
}

TEST(RingOwner, AGuestThatDetachesLeavesTheRingToItsOwner) {
  TestRing ring;
  const auto owner = RingWriter::attach(ring.text(), Source::python_hook, ring.why);
  RingWriter::attach(ring.text(), Source::nccl_plugin, ring.why).reset();
  EXPECT_EQ(ring->head.owner, own_pid_in_head());
  TestChild child([&] {
    return RingWriter::attach(ring.text(), Source::nccl_plugin, ring.why) == nullptr ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(RingOwner, DetachingLeavesTheRecords) {
  TestRing ring;
  auto writer = ring.attach();
  const int32_t group = writer->open_group({.id = "a", .size = 2});
  writer->called(group, 1, {.kind = CallKind::barrier}, nullptr);
  writer.reset();
  EXPECT_EQ(ring->head.owner, 0U);
  EXPECT_EQ(ring->head.attached, ring->head.generation);
  EXPECT_EQ(ring->groups[0].called, 1U);
  writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  EXPECT_EQ(ring->head.attached, 2U);
  EXPECT_EQ(ring->groups[0].called, 0U) << "a new owner begins with an empty ring";
}

TEST(RingOwner, NoProcessTakesTheRingFromARunningOne) {
  TestRing ring;
  const Gate attached;
  TestChild child([&] {
    const auto writer = ring.attach();
    if (writer == nullptr) return 1;
    attached.open();
    pause();
    return 0;
  });
  attached.pass();
  EXPECT_EQ(ring.attach(), nullptr);
  EXPECT_EQ(ring.why, "process " + std::to_string(child.pid()) +
                          " records the calls of this rank, and still runs");
  EXPECT_EQ(ring->head.owner, static_cast<uint64_t>(child.pid()));
  EXPECT_TRUE(has_owner(ring.text()));
}

TEST(RingOwner, AZombieLosesTheRing) {
  TestRing ring;
  TestChild child([&] {
    ring.attach().release();
    return 0;
  });
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  ASSERT_EQ(ring->head.owner, static_cast<uint64_t>(child.pid()));
  EXPECT_FALSE(has_owner(ring.text()));
  const auto writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  EXPECT_EQ(ring->head.owner, own_pid_in_head());
  EXPECT_EQ(ring->head.attached, 2U);
  EXPECT_EQ(ring->head.futex, 2U);
}

TEST(RingOwner, AProcessThatReusesThePidIsNotTheOwner) {
  TestRing ring;
  TestChild child([] { return pause(); });
  const auto pid = static_cast<uint64_t>(child.pid());
  const uint64_t started = start_ticks(stat_fields(child.pid()));
  leave_behind(*ring, pid, started);
  EXPECT_EQ(ring.attach(), nullptr);
  leave_behind(*ring, pid, 0);  // The owner could not read /proc.
  EXPECT_EQ(ring.attach(), nullptr);
  leave_behind(*ring, pid, started - 1);
  EXPECT_NE(ring.attach(), nullptr) << ring.why;
}

// Until the start time is written, only the pid tells whether the owner lives.
TEST(RingOwner, AProcessThatIsAttachingKeepsTheRingWhileItLives) {
  TestRing ring;
  TestChild child([] { return pause(); });
  const uint64_t owner = static_cast<uint64_t>(child.pid()) | kAttaching;
  leave_behind(*ring, owner, 1);
  EXPECT_EQ(ring.attach(), nullptr);
  EXPECT_EQ(ring.why, "process " + std::to_string(child.pid()) +
                          " records the calls of this rank, and still runs");
  child.kill_and_reap();
  const auto writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  EXPECT_EQ(ring->head.attached, 5U);
}

TEST(RingOwner, AProcessThatDiedWhileAttachingLosesTheRing) {
  TestRing ring;
  TestChild child([] { return 0; });
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
  leave_behind(*ring, static_cast<uint64_t>(child.pid()) | kAttaching, 1);
  EXPECT_NE(ring.attach(), nullptr) << ring.why;
}

// All children try once at the same time and live until all have tried.
TEST(RingOwner, OneOfManyThatTakeTheRingOverSucceeds) {
  constexpr int kChildren = 3;
  constexpr int kRounds = 100;
  void* const page = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  std::atomic<int>& ready = *new (page) std::atomic<int>;
  for (int round = 0; round < kRounds; ++round) {
    TestRing ring;
    leave_behind(*ring, static_cast<uint64_t>(pid_of_nobody()), 1);
    ready = 0;
    const Gate tried;
    const Gate done;
    std::vector<std::unique_ptr<TestChild>> children;
    for (int i = 0; i < kChildren; ++i) {
      children.push_back(std::make_unique<TestChild>([&] {
        ++ready;
        while (ready < kChildren)
          std::this_thread::yield();
        const auto writer = ring.attach();
        tried.open();
        done.pass();
        return writer != nullptr ? 1 : 0;
      }));
    }
    for (int i = 0; i < kChildren; ++i)
      tried.pass();
    done.open(kChildren);
    int winners = 0;
    for (const auto& child : children)
      winners += child->wait();
    ASSERT_EQ(winners, 1) << "round " << round;
    ASSERT_EQ(ring->head.generation, 5U);
  }
  munmap(page, sizeof(std::atomic<int>));
}

TEST(RingOwner, ANewOwnerClearsTheRing) {
  TestRing ring;
  auto writer = ring.attach();
  const int32_t group = writer->open_group({.id = "a", .name = "b", .ranks = "0-1", .size = 2});
  for (uint64_t ordinal = 1; ordinal <= 20; ++ordinal)
    writer->completed(writer->called(group, ordinal, {.kind = CallKind::barrier}, &ring));
  writer->message_called(group, {.kind = CallKind::send, .root = 1}, 7, &ring);
  writer->enter_section("checkpoint");
  writer->note_failure(group, "broken");
  ring->records[9].sequence = 2 * 9 + 1;  // As if a writer had died in mid-record.
  ring->head.dropped = 3;
  ring->head.without_group = 4;
  writer.reset();
  writer = ring.attach();
  ASSERT_NE(writer, nullptr) << ring.why;
  const std::vector<std::byte> zeroes(sizeof(Ring) - offsetof(Ring, notes));
  EXPECT_EQ(std::memcmp(&ring->notes, zeroes.data(), zeroes.size()), 0);
  EXPECT_EQ(ring->head.next_record, 0U);
  EXPECT_EQ(ring->head.dropped, 0U);
  EXPECT_EQ(ring->head.without_group, 0U);
}

TEST(RingOwner, AForkedChildWritesNothing) {
  TestRing ring;
  auto writer = ring.attach();
  const int32_t group = writer->open_group({.id = "a", .size = 2});
  const Pending before = writer->called(group, 1, {.kind = CallKind::barrier}, nullptr);
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(&*ring),
                                     reinterpret_cast<const std::byte*>(&*ring + 1));
  TestChild child([&] {
    const bool is_silent =
        !writer->is_attached() && writer->open_group({.id = "b", .size = 2}) == -1 &&
        writer->called(group, 2, {.kind = CallKind::barrier}, nullptr).group == -1 &&
        writer->message_called(group, {.kind = CallKind::send}, 0, nullptr).group == -1;
    writer->launched(before);
    writer->started(before);
    writer->completed(before);
    writer->failed(before);
    writer->withdrawn(before);
    writer->set_state(group, GroupState::failed);
    writer->enter_section("x");
    writer->leave_section();
    writer->note_failure(group, "x");
    writer.reset();
    return is_silent ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(std::memcmp(&*ring, bytes.data(), bytes.size()), 0);
  EXPECT_TRUE(writer->is_attached());
}

TEST(RingOwner, AForkedChildThatAttachesKeepsTheRing) {
  TestRing ring;
  auto writer = ring.attach();
  TestChild child([&] {
    ring->head.owner = own_pid_in_head();
    writer.reset();
    return ring->head.owner == own_pid_in_head() ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(RingOwner, AttachingWakesFutexWaiters) {
  TestRing ring;
  const Gate ready;
  TestChild child([&] {
    const timespec long_time{.tv_sec = 60, .tv_nsec = 0};
    ready.open();
    return syscall(SYS_futex, &ring->head.futex, FUTEX_WAIT, 0, &long_time, nullptr, 0) == 0
               ? 0
               : errno;
  });
  ready.pass();
  while (stat_fields(child.pid())[0] != "S")
    std::this_thread::yield();
  const auto writer = ring.attach();
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace muster::ring
